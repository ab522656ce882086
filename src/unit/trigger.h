// The trigger: what makes a thread overflow. A kernel perf event that sends SIGTRAP to the thread
// itself, or, where perf_event_open is denied, a CPU-time timer per thread.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>

#include "channel/layout.h"

namespace auxtrail::unit {

struct OpenTrigger {
  channel::Trigger kind = channel::Trigger::kNone;
  int fd = -1;           // of the kernel event; it lives as long as somebody holds it
  int kernel_errno = 0;  // why there is no kernel event
  int timer_errno = 0;   // why the calling thread has no timer in its place
  uint32_t timer_hz = 0;
};

// The period that `attr` asks for; a frequency as nanoseconds between overflows.
uint64_t period_of(const perf_event_attr& attr);

// The kernel event of the session's sampler with that number, but for the first, which
// trigger_open() opens if it is a clock. Its descriptor, or -errno.
int sampler_event_open(const perf_event_attr& trigger, uint32_t number);

// Opens a clock for the calling thread, the first sampler's or with kEntryCookie the entry event
// (SessionConfig::entry); where the kernel refuses, timers take its place. A kernel event also
// covers threads created later; with timers, trigger_start_thread() must run in each new thread.
OpenTrigger trigger_open(const perf_event_attr& attr, uint64_t cookie);
void trigger_start_thread();
// Ends the timer of the thread that opened it and starts no more: the process is not sampled (any
// more, or not yet in a forked child).
void trigger_close();
// Whether new threads need trigger_start_thread().
bool trigger_is_timer();

}  // namespace auxtrail::unit
