// BranchBias: where conditionals went most of the time, as the log told (hot_code.cc).
//
// A guess and no more: superblocks follow it, and are right if it is not. Direct mapped by the
// conditional's address; needs the translator lock.
#pragma once

#include <cstdint>

namespace auxtrail::unit {

class BranchBias {
 public:
  enum class Way : uint8_t { kUnknown, kNotTaken, kTaken };

  void set(uint64_t pc, bool taken) {
    entries_[slot(pc)] = {tag(pc), taken ? Way::kTaken : Way::kNotTaken};
  }
  [[nodiscard]] Way get(uint64_t pc) const {
    const Entry& entry = entries_[slot(pc)];
    return entry.tag == tag(pc) ? entry.way : Way::kUnknown;
  }

 private:
  struct Entry {
    uint16_t tag;
    Way way;
  };
  static constexpr uint32_t kSlotBits = 15;
  static uint64_t slot(uint64_t pc) { return pc * 0x9e3779b97f4a7c15 >> (64 - kSlotBits); }
  static uint16_t tag(uint64_t pc) { return static_cast<uint16_t>(pc); }

  Entry entries_[1u << kSlotBits];
};

}  // namespace auxtrail::unit
