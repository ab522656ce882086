// What happens when the trigger's signal arrives: find or set up the thread's state, open a window.
#pragma once

#include <ucontext.h>

namespace auxtrail::unit {

// In the signal handler of the overflowing thread. `deferred`: the program had the signal blocked
// for a while.
void on_overflow(ucontext_t& context, bool deferred);

}  // namespace auxtrail::unit
