// Signals: the unit's handlers, and the program's idea of its own.
//
// Five signals can be raised by an instruction: SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGTRAP. The
// unit's entry is installed for these as long as the process is sampled, and the program's
// dispositions are kept beside it: what sigaction() and its kin report is always the program's own
// view. Signals that are not ours go to the program's handler with stack, registers, siginfo and
// mask as the kernel would have made them; default actions are left to the kernel (the disposition
// is reset and the instruction runs again, or the signal is queued again).
#pragma once

#include <signal.h>

#include <cstdint>

#include "channel/layout.h"

namespace auxtrail::unit {

// The kernel's struct sigaction.
struct KernelAction {
  void* handler = nullptr;  // SIG_DFL, SIG_IGN or a function
  uint64_t flags = 0;
  void* restorer = nullptr;
  uint64_t mask = 0;
};

inline constexpr uint64_t kRestorerFlag = 0x04000000;  // SA_RESTORER
extern "C" void auxtrail_restore_rt();                 // rt_sigreturn; stack_switch.S

// Whether the program's disposition of `signal` is kept by the unit: the five; in continuous
// tracing all but those that libc itself uses and those that can't be handled.
bool is_watched_signal(int signal);
// For continuous tracing, in which the program's handlers must be shown its own position: takes
// over the other dispositions. Single threaded.
void watch_all_signals();

// Where keeps_trigger_off() (small_stacks.h) says otherwise than before: renews what the kernel was
// told of the watched signals.
void tell_kernel_again();

// Learns the dispositions the process started with and installs the unit's entry. Returns 0 or an
// errno.
int install_handlers();
// Whether the unit's handlers are in place and what is interposed is to be watched. In a child that
// was made past libc's fork(), which has no trigger, the first question removes them.
bool handlers_installed();
// Gives the program its signals back: the kernel gets its dispositions and the calling thread's
// SIGTRAP, and from here on everything interposed is libc's own. For a process with one thread, no
// open window and no trigger that could still come.
void remove_handlers();
// Whether the calling process is the one the unit works for. A vfork child shares all of the unit's
// memory but has a signal table, limits and system call filters of its own: what it changes must
// not be noted down.
bool is_own_process();
// In a forked child, single threaded: the process is the child now, and no lock is held by anybody.
// Returns whether handlers are installed.
bool signals_after_fork();

struct Thread;
// Sends the signals again that arrived while the thread was in the unit. For when it is about to
// run natively: they come with the return from a signal that must follow, which sets the program's
// mask.
void replay_held_signals(Thread& thread, uint64_t program_mask);

// Exchanges the program's disposition of a watched signal; in a process that is not the unit's own,
// which has no trigger, the kernel's. Thread safe and async-signal-safe. Null pointers as in
// sigaction(2).
void exchange_action(int signal, const KernelAction* action, KernelAction* old);

// Whether the kernel still has our entry for the watched signals: a program may go around
// sigaction().
bool handlers_in_place();

// Mark the signals of our triggers: perf_event_attr.sig_data, or sigval of the timers. That of the
// sampler number N is kTriggerCookie + N.
inline constexpr uint64_t kTriggerCookie = 0x6c6961727400;
inline constexpr uint64_t kEntryCookie = kTriggerCookie + channel::kMaxSamplers;

}  // namespace auxtrail::unit
