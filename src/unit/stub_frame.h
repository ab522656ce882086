// StubFrame: where a common stub (CodeCache::emit_common_stub) keeps the program's registers while
// the unit works, at the top of the unit's stack. The other three: rax and rcx are in TlsBlock, rsp
// in Thread.
#pragma once

#include <ucontext.h>

#include <cstddef>

#include "unit/thread_state.h"

namespace auxtrail::unit {

// From where rsp points after the stub's last push to the first one.
struct StubFrame {
  greg_t r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, flags;
};
inline constexpr size_t kStubPushes = 14;
static_assert(sizeof(StubFrame) == kStubPushes * sizeof(greg_t));

inline uint64_t stub_rsp(const Thread& thread) { return thread.stack_top - sizeof(StubFrame); }

// All general registers and the flags, but not rip.
inline void copy_program_registers(const Thread& thread, ucontext_t& context) {
  const StubFrame& saved = *reinterpret_cast<const StubFrame*>(stub_rsp(thread));
  auto& registers = context.uc_mcontext.gregs;
  registers[REG_RAX] = static_cast<greg_t>(tls_block.rax);
  registers[REG_RCX] = static_cast<greg_t>(tls_block.rcx);
  registers[REG_RSP] = static_cast<greg_t>(thread.saved_rsp);
  registers[REG_EFL] = saved.flags;
  registers[REG_RDX] = saved.rdx;
  registers[REG_RBX] = saved.rbx;
  registers[REG_RBP] = saved.rbp;
  registers[REG_RSI] = saved.rsi;
  registers[REG_RDI] = saved.rdi;
  registers[REG_R8] = saved.r8;
  registers[REG_R9] = saved.r9;
  registers[REG_R10] = saved.r10;
  registers[REG_R11] = saved.r11;
  registers[REG_R12] = saved.r12;
  registers[REG_R13] = saved.r13;
  registers[REG_R14] = saved.r14;
  registers[REG_R15] = saved.r15;
}

}  // namespace auxtrail::unit
