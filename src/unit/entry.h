// How a process, a forked child and a new thread come into the code cache at once, in continuous
// tracing. (Later the entry event's signals bring a thread back.)
//
// The unit's own code is never traced, so it can't open a window where it is: it sends the thread
// an entry signal, and the handler takes it to where that code returns to. Should SIGTRAP be
// blocked, the code returns natively, and the signal does its work when it comes.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>

namespace auxtrail::unit {
// A siginfo_t as a constant.
struct EntryInfo {
  int32_t signal;
  int32_t error;
  int32_t code;
  int32_t pad;
  int32_t timer[2];
  uint64_t value;
  uint64_t rest[12];
};
static_assert(sizeof(EntryInfo) == sizeof(siginfo_t));
}  // namespace auxtrail::unit

extern "C" {
// The signal that is sent: an entry event's.
extern const auxtrail::unit::EntryInfo auxtrail_entry_info __attribute__((visibility("hidden")));
extern const char auxtrail_entered[];
// pthread_atfork's handler for the child; a start routine whose argument is a ThreadStart.
void auxtrail_forked_child();
void* auxtrail_thread_begin(void* start);
}

namespace auxtrail::unit {

// Whether the program is to be entered where the unit's code returns to.
[[nodiscard]] bool wants_entry();
// In the handler of the entry signal: if it came from entry.S, the context becomes that of the
// program's code that is returned to.
void return_from_entry(ucontext_t& context);

}  // namespace auxtrail::unit
