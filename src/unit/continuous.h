// Continuous tracing: threads run in the code cache all the time.
//
// A window that does not end. It begins at the first overflow, or at the entry event's signal, and
// packets go into the circular AUX area, with a PSB+ at every period, as long as the thread runs
// translatable code; system calls go through the gate (syscall_gate.h). An overflow is an
// interruption as hardware has them: FUP and TIP.PGD at the program's instruction, the sample with
// the newest bytes of the area, TIP.PGE, and on. Where the thread has to run natively (a signal's
// handler, code that can't be translated) the packets say TIP.PGD; the next signal of either event
// brings it back. Async-signal-safe.
#pragma once

#include <ucontext.h>

#include <cstdint>

#include "channel/layout.h"
#include "unit/overflow.h"
#include "unit/thread_state.h"

namespace auxtrail::unit {

// The sample is to be taken where the program's position is known next.
void note_due_sample(Thread& thread, const Overflow& overflow);

// A trigger's signal found the thread at native code: takes the sample that is due, if there is
// one, and enters the cache.
void continuous_begin(Thread& thread, ucontext_t& context);
// The program is going to die of `signal` at `context`, natively: takes the sample of that.
void continuous_fatal_signal(int signal, uint64_t address, const ucontext_t& context);

// Some samplers, by bit, that the unit counts itself overflowed at `pc`, where the packets are.
void continuous_counted_sample(Thread& thread, uint64_t pc, uint32_t samplers);

// The sampler's signal found the thread in a window or a system call.
void continuous_overflow(Thread& thread, ucontext_t& context, const Overflow& overflow);
// The thread is single-stepped no more.
void end_stepping(Thread& thread, ucontext_t& context);
// The trap of a single step on the way to the program's next instruction.
void continuous_step(Thread& thread, ucontext_t& context);

// From the end of the log `way` leads to `pc`, where tracing ends.
void continuous_pause(Thread& thread, uint64_t pc, const Way& way, channel::Reason reason);

// The log is full, or a sample is due, at the program's instruction at `pc`: makes room for more.
// kCount to go on, else why the thread must run natively from there.
channel::Reason continuous_refill(Thread& thread, uint64_t pc);

// The stub at work came to the program's system call at `pc`; returns where the stub goes on.
uint64_t continuous_system_call(Thread& thread, uint64_t pc);

}  // namespace auxtrail::unit
