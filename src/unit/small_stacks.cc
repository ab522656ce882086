// See small_stacks.h.
#include "unit/small_stacks.h"

#include <errno.h>

#include "unit/export.h"
#include "unit/signals.h"
#include "unit/sys.h"

namespace auxtrail::unit {
namespace {

constexpr size_t kSignalHeadroom = 16384;
constexpr size_t kSmallStack = 262144;
constexpr size_t kSmallAlternateStack = 65536;
constexpr int kSignals = 65;

bool small_alternate_stack = false;  // some thread has, or had, one
bool may_use_alternate[kSignals];    // the program's handler for the signal has SA_ONSTACK
bool trap_added[kSignals];           // SIGTRAP in its kernel mask is ours, not the program's

// The kernel's struct sigaction of a signal gets SIGTRAP in its mask, or rather: had it from the
// start.
void add_trap(int signal) {
  KernelAction action;
  constexpr uint64_t kTrapBit = uint64_t{1} << (SIGTRAP - 1);
  if (sys::is_error(sys::call(SYS_rt_sigaction, signal, 0, sys::arg(&action), 8))) return;
  if ((action.flags & SA_ONSTACK) == 0 || (action.mask & kTrapBit) != 0) return;
  action.mask |= kTrapBit;
  trap_added[signal] = !sys::is_error(sys::call(SYS_rt_sigaction, signal, sys::arg(&action), 0, 8));
}

void see_small_alternate_stack() {
  if (small_alternate_stack) return;
  small_alternate_stack = true;
  for (int signal = 1; signal < kSignals; ++signal) {
    if (may_use_alternate[signal]) add_trap(signal);
  }
  tell_kernel_again();
}

}  // namespace

bool needs_headroom(const pthread_attr_t* attr, size_t* bytes) {
  if (attr == nullptr) return false;
  void* address = nullptr;
  size_t size = 0;
  size_t given_size = 0;
  if (pthread_attr_getstacksize(attr, &size) != 0 || size >= kSmallStack) return false;
  if (pthread_attr_getstack(attr, &address, &given_size) != 0) return false;
  // Without a stack of the program's own the address is what "end - size" of a null end gives.
  const bool own_stack = reinterpret_cast<uint64_t>(address) + given_size != 0;
  *bytes = size + kSignalHeadroom;
  return !own_stack;
}

bool keeps_trigger_off(uint64_t action_flags) {
  return small_alternate_stack && (action_flags & SA_ONSTACK) != 0;
}

int change_other_action(int signal, const struct sigaction* action, struct sigaction* old,
                        SigactionFunction* real) {
  const bool known = handlers_installed() && signal > 0 && signal < kSignals && is_own_process();
  if (!known) return real(signal, action, old);
  const bool had_added = trap_added[signal];
  struct sigaction mine;
  bool adds = false;
  if (action != nullptr) {
    mine = *action;
    adds = keeps_trigger_off(static_cast<uint64_t>(static_cast<unsigned>(mine.sa_flags))) &&
           sigismember(&mine.sa_mask, SIGTRAP) == 0;
    if (adds) (void)sigaddset(&mine.sa_mask, SIGTRAP);
  }
  const int result = real(signal, action != nullptr ? &mine : nullptr, old);
  if (result != 0) return result;
  if (old != nullptr && had_added) (void)sigdelset(&old->sa_mask, SIGTRAP);
  if (action != nullptr) {
    may_use_alternate[signal] = (action->sa_flags & SA_ONSTACK) != 0;
    trap_added[signal] = adds;
  }
  return 0;
}

}  // namespace auxtrail::unit

AUXTRAIL_EXPORT int sigaltstack(const stack_t* stack, stack_t* old) noexcept {
  using namespace auxtrail::unit;
  const long result = sys::call(SYS_sigaltstack, sys::arg(stack), sys::arg(old));
  if (sys::is_error(result)) {
    errno = static_cast<int>(-result);
    return -1;
  }
  const bool on = stack != nullptr && (stack->ss_flags & SS_DISABLE) == 0;
  if (on && handlers_installed() && is_own_process() && stack->ss_size < kSmallAlternateStack) {
    see_small_alternate_stack();
  }
  return 0;
}
