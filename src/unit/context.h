// What the unit reads and changes in the ucontext_t of a signal.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>

#include "unit/sys.h"

namespace auxtrail::unit {

inline constexpr greg_t kTrapFlag = 0x100;  // in REG_EFL: a trap after each instruction

// The kernel's part of the set: the mask that the return from the signal sets.
inline uint64_t& signal_mask(ucontext_t& context) {
  return *reinterpret_cast<uint64_t*>(&context.uc_sigmask);
}

inline uint64_t program_register(const ucontext_t& context, int which) {
  return static_cast<uint64_t>(context.uc_mcontext.gregs[which]);
}

// Whether `address` is in the alternate stack on which a signal would be delivered now, from any
// other place. (An SS_AUTODISARM stack is not while a handler runs on it.)
inline bool alternate_stack_holds(const ucontext_t& context, uint64_t address) {
  constexpr int kAutoDisarm = static_cast<int>(1u << 31);  // SS_AUTODISARM
  const stack_t& stack = context.uc_stack;
  if ((stack.ss_flags & (SS_DISABLE | kAutoDisarm)) != 0) return false;
  return address - reinterpret_cast<uint64_t>(stack.ss_sp) < stack.ss_size;
}

// In a handler, on the unit's stack: if the handler's own frame lies in the alternate stack, no
// further signal goes there until the return from the handler, which sets the stack anew.
inline void protect_frame(const ucontext_t& context) {
  if (!alternate_stack_holds(context, reinterpret_cast<uint64_t>(&context))) return;
  stack_t off{};
  off.ss_flags = SS_DISABLE;
  (void)sys::call(SYS_sigaltstack, sys::arg(&off), 0);
}

}  // namespace auxtrail::unit
