// The gate through which the program's system calls are made while it is traced continuously.
//
// A window's signals are blocked; a system call must be interrupted by them as if the program made
// it. So the gate opens the program's own mask, makes the call with the program's registers on its
// stack (below the red zone), and closes the mask again:
//
//   unit_exit ─► make_system_call ─► auxtrail_syscall_gate: mask open, syscall, mask closed ─┐
//        ▲                                      │ a signal with a handler of the program's   │
//        └──────────────────────────────────────┼────────────────────────────────────────────┘
//                                               ▼ leave_gate()
//                          native, at the call (not made yet, or to be restarted) or behind it
//
// A handler is shown the program's own position, and the thread runs natively from there on; the
// gate is never returned to. Signals without a handler pass by as in any system call. The memory
// between the red zone and a signal's frame is the only thing the gate writes of the program's.
#pragma once

#include <ucontext.h>

#include <cstdint>

#include "unit/thread_state.h"

extern "C" {
// All signals but the five of signals.h: blocked while translated code runs.
extern const uint64_t auxtrail_window_mask __attribute__((visibility("hidden")));
// Makes the call of Thread::gate_rax and the registers that the stub saved.
void auxtrail_syscall_gate(auxtrail::unit::Thread* thread);
extern const char auxtrail_gate_begin[];    // the program's registers are in place from here on
extern const char auxtrail_gate_open[];     // all its signals may arrive from here on
extern const char auxtrail_gate_syscall[];  // the system call
extern const char auxtrail_gate_after[];    // its result is in rax
extern const char auxtrail_gate_saved[];    // and in Thread::gate_rax
extern const char auxtrail_gate_end[];      // only the five may arrive from here on
}

namespace auxtrail::unit {

// In the gate, where signals arrive?
[[nodiscard]] bool is_in_gate(const ucontext_t& context);
// Whether a thread in the gate is at the program's call or right behind it; else it is at one of
// the gate's own.
[[nodiscard]] bool is_program_call(const ucontext_t& context);
// Whether the system call was made, of a thread in the gate.
[[nodiscard]] bool call_was_made(const ucontext_t& context);
// Whether only the five may arrive there: the mask is not the program's yet, or no more.
[[nodiscard]] bool gate_is_closed(const ucontext_t& context);
// The program's position in the gate: at its call, or behind it.
[[nodiscard]] uint64_t gate_position(const Thread& thread, const ucontext_t& context);

// A signal with a handler arrived in the gate: makes `context` the program's own, running natively.
void leave_gate(Thread& thread, ucontext_t& context);

// Whether the call whose registers the stub saved may go through the gate. The others need the
// program to run natively: they return twice, or elsewhere, or with another fs base or stack.
[[nodiscard]] bool fits_gate(const Thread& thread);

// Makes the call for the stub at work, and sets the registers as it leaves them. What the unit must
// know of it first is told (mappings, signal dispositions, sandboxes).
void make_system_call(Thread& thread, uint64_t pc);

}  // namespace auxtrail::unit
