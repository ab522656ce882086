// What happens when the trigger's signal arrives: find or set up the thread's state, open a window.
#pragma once

#include <ucontext.h>

namespace auxtrail::unit {

// In the signal handler of the overflowing thread. `deferred`: the signal was blocked for a while,
// by the program or by the unit.
void on_overflow(ucontext_t& context, bool deferred);

}  // namespace auxtrail::unit
