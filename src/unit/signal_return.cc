// See signal_return.h.
#include "unit/signal_return.h"

#include <signal.h>

#include "unit/stack_switch.h"

namespace auxtrail::unit {
namespace {

// glibc's ucontext_t continues behind what the kernel writes and reads.
constexpr size_t kKernelContextBytes = offsetof(ucontext_t, uc_sigmask) + sizeof(uint64_t);
constexpr size_t kSoftwareBytesOffset = 464;      // in the legacy region, left alone by xsave
constexpr size_t kLeastExtendedBytes = 512 + 64;  // legacy region and header

}  // namespace

void SignalReturn::adopt(const ucontext_t& trigger) {
  usable_ = false;
  if (trigger.uc_mcontext.fpregs == nullptr) return;
  const auto* theirs = reinterpret_cast<const std::byte*>(trigger.uc_mcontext.fpregs);
  _fpx_sw_bytes form;
  __builtin_memcpy(&form, theirs + kSoftwareBytesOffset, sizeof form);
  if (form.magic1 != FP_XSTATE_MAGIC1 || form.xstate_size < kLeastExtendedBytes ||
      form.xstate_size + sizeof(uint32_t) > kMaxExtendedBytes) {
    return;
  }
  __builtin_memcpy(&context_, &trigger, kKernelContextBytes);
  context_.uc_mcontext.fpregs = reinterpret_cast<fpregset_t>(extended_);
  __builtin_memcpy(extended_ + kSoftwareBytesOffset, &form, sizeof form);
  constexpr uint32_t kEnd = FP_XSTATE_MAGIC2;
  __builtin_memcpy(extended_ + form.xstate_size, &kEnd, sizeof kEnd);
  features_ = form.xstate_bv;
  usable_ = true;
}

void SignalReturn::go() { auxtrail_signal_return(&context_, extended_, features_); }

}  // namespace auxtrail::unit
