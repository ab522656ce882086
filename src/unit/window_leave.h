// The way out of a window from C++ code that a stub called, and out of that code when it faults.
#pragma once

#include <ucontext.h>

#include <cstdint>

#include "channel/layout.h"
#include "unit/thread_state.h"

namespace auxtrail::unit {

// Ends the window before the program's instruction at `pc`. Where signal_return.h serves it does
// not come back; else it returns the exit trap's address for the stub to go on at, whose handler
// ends the window.
uint64_t end_from_stub(Thread& thread, uint64_t pc, channel::Reason reason);

// A fault at `address` hit the unit itself, reading code that is gone or memory that can't be had:
// makes `context` return from the stub or handler at work as if the code could not be translated.
void abort_translation(Thread& thread, ucontext_t& context, uint64_t address);

}  // namespace auxtrail::unit
