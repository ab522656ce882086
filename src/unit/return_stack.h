// ReturnStack: the return addresses that every decoder of the packets so far has on its own stack.
//
// Return compression: a return that leads where the newest of them says is no more than a "taken"
// outcome. A processor tracks 64 calls (SDM vol. 3, "Indirect Transfer Compression for Returns");
// decoders keep as many. They differ in what a return that is not compressed does to their stack
// (libipt leaves it alone, perf pops), so after one that could have been nothing before it counts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "unit/passage.h"

namespace auxtrail::unit {

// A copy works on the same slots: the drain's stays in registers.
class ReturnStack {
 public:
  // Calls that return within their superblock are on a decoder's stack, too, if never here.
  static constexpr uint32_t kMaxDepth = 64 - 2 * kMaxPendingCalls;
  static constexpr uint32_t kSlots = 256;
  using Slots = uint64_t[kSlots];

  explicit ReturnStack(Slots& slots)
      : top_(slots + kLowest), limit_(slots + kSlots - kMaxPendingCalls) {
    clear();
  }

  // What is below can't be reached: nothing returns to kNobody.
  void clear() { *top_ = kNobody; }
  void push(const uint64_t (&returns_to)[kMaxPendingCalls], uint32_t calls) {
    static_assert(kMaxPendingCalls == 3);
    if (__builtin_expect(top_ >= limit_, 0)) move_down();
    top_[1] = returns_to[0];
    top_[2] = returns_to[1];
    top_[3] = returns_to[2];
    top_ += calls;
    *(top_ - kMaxDepth) = kNobody;
  }
  // Whether a return to `target`, of 48 bits, is compressed.
  bool pop(uint64_t target) {
    const bool expected = *top_ == target;
    top_ -= static_cast<size_t>(expected);
    if (!expected) clear();
    return expected;
  }

 private:
  static constexpr uint64_t kNobody = ~uint64_t{0};
  // push() writes kMaxDepth below the top, which may come down by as much after a move.
  static constexpr uint32_t kLowest = 2 * kMaxDepth;
  static_assert(kLowest + kMaxDepth + kMaxPendingCalls < kSlots);

  void move_down() {
    uint64_t* const moved = limit_ + kMaxPendingCalls - kSlots + kLowest;
    for (uint32_t i = 0; i <= kMaxDepth; ++i) *(moved - i) = *(top_ - i);
    top_ = moved;
  }

  uint64_t* top_;  // the newest
  uint64_t* limit_;
};

}  // namespace auxtrail::unit
