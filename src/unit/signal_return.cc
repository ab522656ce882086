// See signal_return.h.
#include "unit/signal_return.h"

#include <cpuid.h>
#include <signal.h>

#include "unit/stack_switch.h"

namespace auxtrail::unit {
namespace {

// glibc's ucontext_t continues behind what the kernel writes and reads.
constexpr size_t kKernelContextBytes = offsetof(ucontext_t, uc_sigmask) + sizeof(uint64_t);
constexpr size_t kSoftwareBytesOffset = 464;      // in the legacy region, left alone by xsave
constexpr size_t kLeastExtendedBytes = 512 + 64;  // legacy region and header

bool tells_state_in_use = false;  // XGETBV with ECX = 1; all processors with AMX do

}  // namespace

bool SignalReturn::note_processor() {
  constexpr unsigned kLeaf = 0x0d;
  constexpr unsigned kXgetbvOfOne = 1U << 2;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  const bool known = __get_cpuid_count(kLeaf, 1, &eax, &ebx, &ecx, &edx) != 0;
  tells_state_in_use = known && (eax & kXgetbvOfOne) != 0;
  return tells_state_in_use;
}

bool SignalReturn::covers_state_in_use() const {
  if (!tells_state_in_use) return true;
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  const uint64_t in_use = uint64_t{high} << 32 | low;
  return (in_use & ~features_) == 0;
}

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
