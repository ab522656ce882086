// The System V and old BSD signal calls. libc's go around the functions that the unit stands in
// front of, so here they are again, made of those. Reference: sigset(3), sigvec(3),
// siginterrupt(3).
#include <signal.h>

#include "unit/export.h"
#include "unit/interpose.h"
#include "unit/libc_function.h"
#include "unit/signal_set.h"
#include "unit/signals.h"

namespace auxtrail::unit {
namespace {

Real<int(int, int)> real_siginterrupt("siginterrupt");

uint64_t interrupting_signals = 0;  // of the watched ones

// Returns whether it was blocked before; -1 with errno set for a number that is no signal.
int change_one(int how, int signal) {
  sigset_t set;
  sigset_t old;
  (void)sigemptyset(&set);
  if (sigaddset(&set, signal) != 0 || sigprocmask(how, &set, &old) != 0) return -1;
  return sigismember(&old, signal);
}

// BSD's masks have the first 32 signals as the bits of a number.
sigset_t to_set(int mask) {
  const uint64_t bits = static_cast<uint32_t>(mask);
  sigset_t set;
  (void)sigemptyset(&set);
  __builtin_memcpy(&set, &bits, sizeof bits);
  return set;
}

int change_first(int how, int mask) {
  const sigset_t set = to_set(mask);
  sigset_t old;
  (void)sigemptyset(&old);
  (void)sigprocmask(how, &set, &old);
  uint64_t before = 0;
  __builtin_memcpy(&before, &old, sizeof before);
  return static_cast<int>(before);
}

int suspend_with_first(int mask) {
  const sigset_t set = to_set(mask);
  return sigsuspend(&set);
}
int suspend_without(int signal) {
  sigset_t set;
  if (sigprocmask(SIG_BLOCK, nullptr, &set) != 0 || sigdelset(&set, signal) != 0) return -1;
  return sigsuspend(&set);
}

}  // namespace

bool is_interrupting(int signal) {
  return (__atomic_load_n(&interrupting_signals, __ATOMIC_RELAXED) & signal_bit(signal)) != 0;
}

void resolve_interposed_old_signals() { (void)real_siginterrupt.get(); }

}  // namespace auxtrail::unit

using namespace auxtrail::unit;  // NOLINT: the exported functions below are libc's names

AUXTRAIL_EXPORT sighandler_t sigset(int signal, sighandler_t handler) noexcept {
  struct sigaction old {};
  if (handler == SIG_HOLD) {
    if (sigaction(signal, nullptr, &old) != 0) return SIG_ERR;
    const int was_blocked = change_one(SIG_BLOCK, signal);
    if (was_blocked < 0) return SIG_ERR;
    return was_blocked != 0 ? SIG_HOLD : old.sa_handler;
  }
  struct sigaction action {};
  action.sa_handler = handler;
  if (sigaction(signal, &action, &old) != 0) return SIG_ERR;
  const int was_blocked = change_one(SIG_UNBLOCK, signal);
  if (was_blocked < 0) return SIG_ERR;
  return was_blocked != 0 ? SIG_HOLD : old.sa_handler;
}
AUXTRAIL_EXPORT int sigignore(int signal) noexcept {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  return sigaction(signal, &action, nullptr);
}
AUXTRAIL_EXPORT int sighold(int signal) noexcept {
  return change_one(SIG_BLOCK, signal) < 0 ? -1 : 0;
}
AUXTRAIL_EXPORT int sigrelse(int signal) noexcept {
  return change_one(SIG_UNBLOCK, signal) < 0 ? -1 : 0;
}
AUXTRAIL_EXPORT int sigblock(int mask) noexcept { return change_first(SIG_BLOCK, mask); }
AUXTRAIL_EXPORT int sigsetmask(int mask) noexcept { return change_first(SIG_SETMASK, mask); }
AUXTRAIL_EXPORT int siggetmask() noexcept { return change_first(SIG_BLOCK, 0); }
// The header gives programs the second as sigpause(); the first is BSD's.
#undef sigpause
AUXTRAIL_EXPORT int auxtrail_bsd_sigpause(int mask) __asm__("sigpause");
AUXTRAIL_EXPORT int auxtrail_bsd_sigpause(int mask) { return suspend_with_first(mask); }
AUXTRAIL_EXPORT int __xpg_sigpause(int signal) { return suspend_without(signal); }
AUXTRAIL_EXPORT int __sigpause(int signal_or_mask, int is_signal) {
  return is_signal != 0 ? suspend_without(signal_or_mask) : suspend_with_first(signal_or_mask);
}
AUXTRAIL_EXPORT int siginterrupt(int signal, int interrupt) noexcept {
  if (!handlers_installed() || !is_watched_signal(signal)) {
    return real_siginterrupt(signal, interrupt);
  }
  struct sigaction action {};
  if (sigaction(signal, nullptr, &action) != 0) return -1;
  if (interrupt != 0) {
    __atomic_fetch_or(&interrupting_signals, signal_bit(signal), __ATOMIC_RELAXED);
    action.sa_flags &= ~SA_RESTART;
  } else {
    __atomic_fetch_and(&interrupting_signals, ~signal_bit(signal), __ATOMIC_RELAXED);
    action.sa_flags |= SA_RESTART;
  }
  return sigaction(signal, &action, nullptr);
}
