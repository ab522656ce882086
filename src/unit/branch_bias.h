// BranchBias: where branches went most of the time, as the log told (hot_code.cc).
//
// A guess and no more: superblocks follow it, and are right if it is not. A branch may go one way
// behind one superblock's beginning and another way behind another's: an interpreter's jump to the
// next operation has one address and many targets, but in a superblock of one operation mostly one.
// So what is known of a branch at its place in a superblock comes first, then what is known of it
// in general. Direct mapped; needs the translator lock.
#pragma once

#include <cstdint>

namespace auxtrail::unit {

class BranchBias {
 public:
  enum class Way : uint8_t { kUnknown, kNotTaken, kTaken };

  // A branch in a superblock.
  struct Place {
    uint64_t first_pc;  // the superblock's
    uint32_t insns;     // from there up to the branch
    uint64_t pc;        // the branch's
  };

  // Of conditionals.
  void set(const Place& place, bool taken) {
    const Way way = taken ? Way::kTaken : Way::kNotTaken;
    ways_[slot(key(place))] = {key(place), way};
    ways_[slot(key(place.pc))] = {key(place.pc), way};
  }
  [[nodiscard]] Way get(const Place& place) const {
    const Entry<Way>& here = ways_[slot(key(place))];
    if (here.key == key(place)) return here.value;
    const Entry<Way>& anywhere = ways_[slot(key(place.pc))];
    return anywhere.key == key(place.pc) ? anywhere.value : Way::kUnknown;
  }

  // Of indirect branches; 0 if none is known, kNone if there is none to speak of.
  static constexpr uint64_t kNone = 1;
  void set_target(const Place& place, uint64_t target) {
    targets_[slot(key(place))] = {key(place), target};
    Entry<uint64_t>& anywhere = targets_[slot(key(place.pc))];
    const bool differs = anywhere.key == key(place.pc) && anywhere.value != target;
    anywhere = {key(place.pc), differs ? kNone : target};
  }
  [[nodiscard]] uint64_t target(const Place& place) const {
    const Entry<uint64_t>& here = targets_[slot(key(place))];
    if (here.key == key(place)) return here.value;
    const Entry<uint64_t>& anywhere = targets_[slot(key(place.pc))];
    // That it has many elsewhere says nothing of this place.
    return anywhere.key == key(place.pc) && anywhere.value != kNone ? anywhere.value : 0;
  }

 private:
  template <class T>
  struct Entry {
    uint64_t key;
    T value;
  };
  static constexpr uint32_t kSlotBits = 15;
  static constexpr uint64_t kMix = 0x9e3779b97f4a7c15;
  static uint64_t key(uint64_t pc) { return pc * kMix; }
  static uint64_t key(const Place& place) {
    return ((place.first_pc * kMix ^ place.pc) + place.insns) * kMix;
  }
  static uint64_t slot(uint64_t key) { return key >> (64 - kSlotBits); }

  Entry<Way> ways_[1u << kSlotBits];
  Entry<uint64_t> targets_[1u << kSlotBits];
};

}  // namespace auxtrail::unit
