// Windows: a stretch of the program executed from the code cache, between an overflow and its
// sample.
//
//   native ─SIGTRAP─► window_begin ─sigreturn─► code cache ⇄ unit_exit / unit_indirect
//                                                   │              │ (cold code, full log)
//                                       fault, trap │              │ end_from_stub
//   native ◄─sigreturn─ window_end: packets, sample ◄──────────────┘
//
// While a window is open the thread's asynchronous signals are blocked; the program's own mask
// comes back with the sigreturn that ends the window, so a pending signal is delivered at a native
// instruction boundary. All of this runs in signal handlers or on behalf of translated code:
// async-signal-safe, no allocation.
#pragma once

#include <ucontext.h>

#include <cstdint>

#include "channel/layout.h"
#include "unit/code_cache.h"
#include "unit/deferred_log.h"
#include "unit/thread_state.h"

namespace auxtrail::unit {

// Set once before the first overflow.
struct WindowConfig {
  uint32_t pid = 0;
  uint64_t periods[channel::kMaxSamplers] = {};  // what samples state
  // The samplers that are no clocks, by bit: what the unit itself does to overflow them (its page
  // faults, its system calls) is nothing of the program's.
  uint32_t exact_samplers = 0;
  bool reads_counts = false;     // some samples tell what their events have counted
  uint64_t period_ns = 1000000;  // expected time between overflows, bounds the work of a window
  uint64_t sample_bytes = 4096;  // attr.aux_sample_size
  // Of continuous tracing: a PSB+ follows after so many bytes and one stretch of so many units of
  // the log at most, so that every sample holds one.
  uint64_t psb_period_bytes = 0;
  size_t stretch_units = 0;
  DeferredSize deferred{0, 0};  // places are 0 where nothing is deferred
};
extern WindowConfig window_config;
// Sets it up for a session. A thread's timer may take the first sampler's place then, at its rate.
void configure_windows(const channel::SessionConfig& config);
void set_timer_rate(uint32_t hz);

// Opens a window at the interrupted instruction: on return `context` continues in the code cache.
// If that is not possible a sample without history is delivered at once and the program goes on
// natively.
void window_begin(Thread& thread, ucontext_t& context);

// Ends the open window at `pc`: writes the packets that lead there, delivers the sample, and makes
// `context` continue natively at `pc`. `way` (passage.h) through the current superblock is not in
// the log yet.
void window_end(Thread& thread, ucontext_t& context, uint64_t pc, const Way& way,
                channel::Reason reason);

// Called by the common stubs with the program's state saved; both return the code address to go on
// at. What was taken stands in TlsBlock::target: an exit_token() or a program address.
extern "C" uint64_t unit_exit(Thread* thread);
extern "C" uint64_t unit_indirect(Thread* thread);

}  // namespace auxtrail::unit
