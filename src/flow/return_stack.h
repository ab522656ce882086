// The return addresses of near calls, for compressed returns: a TNT bit of 1 at a RET says that it
// led to the newest of them. 64 deep; the oldest is dropped, as the hardware does it.
// Reference: Intel SDM vol. 3, "Intel Processor Trace", "RET Compression".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace auxtrail::flow {

class ReturnStack {
 public:
  static constexpr size_t kDepth = 64;

  struct Entry {
    uint64_t ip = 0;
    // For the owner's use: what he knows about that address (0: nothing).
    uint64_t hint = 0;
  };

  void clear() { size_ = 0; }
  [[nodiscard]] size_t size() const { return size_; }

  void push(uint64_t ip, uint64_t hint = 0) {
    entries_[top_++ % kDepth] = {ip, hint};
    size_ = size_ < kDepth ? size_ + 1 : kDepth;
  }
  // False if the stack is empty.
  bool pop(Entry& entry) {
    if (size_ == 0) return false;
    --size_;
    entry = entries_[--top_ % kDepth];
    return true;
  }

 private:
  std::array<Entry, kDepth> entries_{};
  size_t top_ = 0;
  size_t size_ = 0;
};

}  // namespace auxtrail::flow
