// The return addresses of near calls, for compressed returns: a TNT bit of 1 at a RET says that it
// led to the newest of them. 64 deep; the oldest is dropped, as the hardware does it.
// Reference: Intel SDM vol. 3, "Intel Processor Trace", "RET Compression".
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace auxtrail::flow {

class ReturnStack {
 public:
  static constexpr size_t kDepth = 64;

  struct Entry {
    uint64_t ip = 0;
    // For whoever pushed it: what he knows about that address. 0: nothing.
    uint32_t hint = 0;
  };

  void clear() { size_ = 0; }
  [[nodiscard]] size_t size() const { return size_; }

  void push(uint64_t ip) { append({ip, 0}, 1); }

  // The same if `count` is 1, nothing if it is 0; without a branch.
  void append(const Entry& entry, size_t count) {
    entries_[top_ % kSlots] = entry;
    top_ += count;
    size_ = std::min(size_ + count, kDepth);
  }

  // False if the stack is empty.
  bool pop(Entry& entry) {
    if (size_ == 0) return false;
    --size_;
    entry = entries_[--top_ % kSlots];
    return true;
  }

  void forget_hints() {
    for (Entry& entry : entries_) entry.hint = 0;
  }

  // The newest is 0.
  Entry& at(size_t age) { return entries_[(top_ - 1 - age) % kSlots]; }

 private:
  static constexpr size_t kSlots = 2 * kDepth;  // so that append() never hits a live entry
  std::array<Entry, kSlots> entries_{};
  size_t top_ = 0;
  size_t size_ = 0;
};

}  // namespace auxtrail::flow
