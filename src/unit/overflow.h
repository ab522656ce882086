// What happens when the trigger's signal arrives: find or set up the thread's state, open a window.
#pragma once

#include <ucontext.h>

namespace auxtrail::unit {

// In the signal handler of the overflowing thread. `deferred`: the signal was blocked for a while,
// by the program or by the unit. `is_sampler`: a sample is wanted; else it is the entry event,
// which only brings the thread into the code cache.
void on_overflow(ucontext_t& context, bool deferred, bool is_sampler);

}  // namespace auxtrail::unit
