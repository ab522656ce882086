// What happens when the trigger's signal arrives: find or set up the thread's state, open a window.
#pragma once

#include <ucontext.h>

#include <cstdint>

#include "channel/layout.h"

namespace auxtrail::unit {

// What a trigger's signal tells.
struct Overflow {
  // Of the sampler; channel::kMaxSamplers: the entry event, which only brings the thread into the
  // code cache.
  uint64_t number = 0;
  bool deferred = false;  // the signal was blocked for a while, by the program or by the unit
  uint64_t address = 0;   // of a watchpoint's or page fault's data

  [[nodiscard]] bool wants_sample() const { return number < channel::kMaxSamplers; }
};

// In the signal handler of the overflowing thread.
void on_overflow(ucontext_t& context, const Overflow& overflow);

}  // namespace auxtrail::unit
