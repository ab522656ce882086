// ReturnStack: the return addresses that every decoder of the packets so far has on its own stack.
//
// Return compression: a return that leads where the newest of them says is no more than a "taken"
// outcome. A processor tracks 64 calls (SDM vol. 3, "Indirect Transfer Compression for Returns");
// decoders keep as many. They differ in what a return that is not compressed does to their stack
// (libipt leaves it alone, perf pops), so after one that could have been nothing before it counts.
#pragma once

#include <cstdint>

#include "unit/passage.h"

namespace auxtrail::unit {

struct ReturnStack {
  static constexpr uint32_t kSlots = 64;
  // Calls that return within their superblock are on a decoder's stack, too, if never here.
  static constexpr uint32_t kMaxDepth = kSlots - 2 * kMaxPendingCalls;

  uint64_t slots[kSlots];
  uint32_t top;  // modulo kSlots, the newest
  uint32_t depth;

  void clear() { depth = 0; }
  void push(const uint64_t (&returns_to)[kMaxPendingCalls], uint32_t calls) {
    static_assert(kMaxPendingCalls == 3);
    slots[(top + 1) % kSlots] = returns_to[0];
    slots[(top + 2) % kSlots] = returns_to[1];
    slots[(top + 3) % kSlots] = returns_to[2];
    top += calls;
    const uint32_t deeper = depth + calls;
    depth = deeper < kMaxDepth ? deeper : kMaxDepth;
  }
  // Whether a return to `target` is compressed.
  bool pop(uint64_t target) {
    if (depth == 0) return false;
    if (slots[top % kSlots] != target) {
      clear();
      return false;
    }
    --top;
    --depth;
    return true;
  }
};

}  // namespace auxtrail::unit
