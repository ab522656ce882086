// SIGTRAP is never blocked in the kernel, whatever the program asks for: the trigger must get
// through. Blocked, it would surface in sigwait() or interrupt ppoll(). The program is shown the
// mask it asked for, and a SIGTRAP that somebody sends meanwhile is kept until the program would
// have received it.
#include <errno.h>
#include <signal.h>

#include "unit/export.h"
#include "unit/interpose.h"
#include "unit/libc_function.h"
#include "unit/signal_set.h"
#include "unit/signals.h"
#include "unit/small_stacks.h"
#include "unit/sys.h"
#include "unit/thread_state.h"

namespace auxtrail::unit {
namespace {

constexpr uint64_t kTrapBit = signal_bit(SIGTRAP);
constexpr uint64_t kLibcSignals = uint64_t{3} << 31;  // SIGCANCEL and SIGSETXID are libc's own

uint64_t bits_of(const sigset_t& set) { return *reinterpret_cast<const uint64_t*>(&set); }
void set_bits(sigset_t* set, uint64_t bits) {
  (void)sigemptyset(set);
  *reinterpret_cast<uint64_t*>(set) = bits;
}

void take_pending_trap(siginfo_t* info) {
  __builtin_memset(info, 0, sizeof *info);
  __builtin_memcpy(info, tls_block.trap_info, sizeof tls_block.trap_info);
  tls_block.trap_pending = 0;
}

void queue_pending_trap() {
  siginfo_t info;
  take_pending_trap(&info);
  (void)sys::call(SYS_rt_tgsigqueueinfo, sys::getpid(), sys::gettid(), SIGTRAP, sys::arg(&info));
}
void release_pending_trap() {
  if (tls_block.trap_pending != 0 && tls_block.trap_blocked == 0) queue_pending_trap();
}

void change_kernel_trap(int how) {
  (void)sys::call(SYS_rt_sigprocmask, how, sys::arg(&kTrapBit), 0, 8);
}

// Only the unit's own process has a trigger: a child that a raw clone made has none, and its masks
// are the kernel's business. Returns 0 or an errno.
int change_mask(int how, const sigset_t* set, sigset_t* old) {
  const bool watch = handlers_installed() && is_own_process();
  const uint32_t was_blocked = tls_block.trap_blocked;
  uint64_t wanted = 0;
  if (set != nullptr) wanted = bits_of(*set) & ~kLibcSignals;
  const uint64_t told = watch && how != SIG_UNBLOCK ? wanted & ~kTrapBit : wanted;
  uint64_t before = 0;
  const long result = sys::call(SYS_rt_sigprocmask, how, set != nullptr ? sys::arg(&told) : 0,
                                sys::arg(&before), 8);
  if (sys::is_error(result)) return static_cast<int>(-result);
  if (watch && set != nullptr) {
    const bool named = (wanted & kTrapBit) != 0;
    if (how == SIG_SETMASK) tls_block.trap_blocked = named ? 1 : 0;
    if (how == SIG_BLOCK && named) tls_block.trap_blocked = 1;
    if (how == SIG_UNBLOCK && named) tls_block.trap_blocked = 0;
  }
  if (old != nullptr) {
    // In a handler that must not be interrupted the trigger is blocked by us, not by the program.
    if (keeps_trigger_off(SA_ONSTACK)) before &= ~kTrapBit;
    set_bits(old, was_blocked != 0 ? before | kTrapBit : before);
  }
  if (watch) release_pending_trap();
  return 0;
}

int fail_with(long error) {
  errno = static_cast<int>(error);
  return -1;
}

// A kept SIGTRAP is what the caller waits for: it gets that. False if there is none or it waits for
// others.
bool take_waited_trap(const sigset_t* set, siginfo_t* info) {
  if (tls_block.trap_pending == 0 || (bits_of(*set) & kTrapBit) == 0) return false;
  siginfo_t kept;
  take_pending_trap(&kept);
  if (info != nullptr) *info = kept;
  return true;
}

// The real ones: they are cancellation points.
Real<int(const sigset_t*, int*)> real_sigwait("sigwait");
Real<int(const sigset_t*, siginfo_t*)> real_sigwaitinfo("sigwaitinfo");
Real<int(const sigset_t*, siginfo_t*, const timespec*)> real_sigtimedwait("sigtimedwait");
Real<int(const sigset_t*)> real_sigsuspend("sigsuspend");

}  // namespace

void hand_over_trap() {
  if (tls_block.trap_blocked != 0) change_kernel_trap(SIG_BLOCK);
  if (tls_block.trap_pending != 0) queue_pending_trap();
  tls_block.trap_blocked = 0;
}

void resolve_interposed_waits() {
  (void)real_sigwait.get();
  (void)real_sigwaitinfo.get();
  (void)real_sigtimedwait.get();
  (void)real_sigsuspend.get();
}

}  // namespace auxtrail::unit

using namespace auxtrail::unit;  // NOLINT: the exported functions below are libc's names

AUXTRAIL_EXPORT int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  const int error = change_mask(how, set, old);
  return error == 0 ? 0 : fail_with(error);
}
AUXTRAIL_EXPORT int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return change_mask(how, set, old);
}
AUXTRAIL_EXPORT int sigpending(sigset_t* set) noexcept {
  uint64_t bits = 0;
  const long result = sys::call(SYS_rt_sigpending, sys::arg(&bits), 8);
  if (sys::is_error(result)) return fail_with(-result);
  set_bits(set, tls_block.trap_pending != 0 ? bits | kTrapBit : bits);
  return 0;
}
AUXTRAIL_EXPORT int sigwait(const sigset_t* set, int* signal) {
  if (!take_waited_trap(set, nullptr)) return real_sigwait(set, signal);
  *signal = SIGTRAP;
  return 0;
}
AUXTRAIL_EXPORT int sigwaitinfo(const sigset_t* set, siginfo_t* info) {
  return take_waited_trap(set, info) ? SIGTRAP : real_sigwaitinfo(set, info);
}
AUXTRAIL_EXPORT int sigtimedwait(const sigset_t* set, siginfo_t* info, const timespec* timeout) {
  return take_waited_trap(set, info) ? SIGTRAP : real_sigtimedwait(set, info, timeout);
}
AUXTRAIL_EXPORT int sigsuspend(const sigset_t* set) {
  if (!handlers_installed() || !is_own_process()) return real_sigsuspend(set);
  const uint32_t was_blocked = tls_block.trap_blocked;
  const uint32_t is_blocked = (bits_of(*set) & kTrapBit) != 0 ? 1 : 0;
  // A kept SIGTRAP is to end the call, so it must not come before: the kernel's sigsuspend opens
  // the mask for it.
  const bool releases = tls_block.trap_pending != 0 && is_blocked == 0;
  if (releases) {
    change_kernel_trap(SIG_BLOCK);
    queue_pending_trap();
  }
  tls_block.trap_blocked = is_blocked;
  const uint64_t outer_mask = tls_block.suspend_mask;
  const uint64_t outer_rsp = tls_block.suspend_rsp;
  tls_block.suspend_mask = bits_of(*set);
  tls_block.suspend_rsp = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  const int result = real_sigsuspend(set);
  tls_block.suspend_mask = outer_mask;
  tls_block.suspend_rsp = outer_rsp;
  tls_block.trap_blocked = was_blocked;
  if (releases) change_kernel_trap(SIG_UNBLOCK);
  return result;
}
