// BranchBias: where branches went most of the time, as the log told (hot_code.cc).
//
// A guess and no more: superblocks follow it, and are right if it is not. Direct mapped by the
// branch's address; needs the translator lock.
#pragma once

#include <cstdint>

namespace auxtrail::unit {

class BranchBias {
 public:
  enum class Way : uint8_t { kUnknown, kNotTaken, kTaken };

  // Of conditionals.
  void set(uint64_t pc, bool taken) {
    entries_[slot(pc)] = {tag(pc), taken ? Way::kTaken : Way::kNotTaken};
  }
  [[nodiscard]] Way get(uint64_t pc) const {
    const Entry& entry = entries_[slot(pc)];
    return entry.tag == tag(pc) ? entry.way : Way::kUnknown;
  }

  // Of indirect branches; 0 if none is known, kNone if there is none to speak of.
  static constexpr uint64_t kNone = 1;
  void set_target(uint64_t pc, uint64_t target) { targets_[slot(pc)] = {pc, target}; }
  [[nodiscard]] uint64_t target(uint64_t pc) const {
    const Target& entry = targets_[slot(pc)];
    return entry.pc == pc ? entry.target : 0;
  }

 private:
  struct Entry {
    uint16_t tag;
    Way way;
  };
  static constexpr uint32_t kSlotBits = 15;
  static uint64_t slot(uint64_t pc) { return pc * 0x9e3779b97f4a7c15 >> (64 - kSlotBits); }
  static uint16_t tag(uint64_t pc) { return static_cast<uint16_t>(pc); }

  struct Target {
    uint64_t pc;
    uint64_t target;
  };
  Entry entries_[1u << kSlotBits];
  Target targets_[1u << kSlotBits];
};

}  // namespace auxtrail::unit
