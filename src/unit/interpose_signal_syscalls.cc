// Signal dispositions that a program sets through syscall(), past libc's sigaction().
// syscall_entry.S calls this for rt_sigaction.
#include <errno.h>

#include "unit/interpose.h"
#include "unit/signals.h"
#include "unit/sys.h"

namespace auxtrail::unit {
namespace {

constexpr long kMaskBytes = 8;  // the kernel refuses other sizes

// The same system call tells whether the program's pointers lead anywhere: no other one that a
// system could lack or forbid.
bool can_read(long action) {
  constexpr int kNoSignal = 0;  // looked at only after the action was read
  return sys::call(SYS_rt_sigaction, kNoSignal, action, 0, kMaskBytes) != -EFAULT;
}
bool can_write(int signal, long action) {
  return sys::call(SYS_rt_sigaction, signal, 0, action, kMaskBytes) != -EFAULT;
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) SyscallResult auxtrail_rt_sigaction(
    long /*number*/, long signal_number, long action, long old, long mask_bytes) {
  const auto signal = static_cast<int>(signal_number);
  if (!handlers_installed() || !is_watched_signal(signal) || mask_bytes != kMaskBytes) {
    return {0, 0};
  }
  if (action != 0 && !can_read(action)) return {-EFAULT, 1};
  KernelAction before;
  exchange_action(signal, reinterpret_cast<const KernelAction*>(action), &before);
  if (old != 0) {
    if (!can_write(signal, old)) return {-EFAULT, 1};
    *reinterpret_cast<KernelAction*>(old) = before;
  }
  return {0, 1};
}

}  // namespace auxtrail::unit
