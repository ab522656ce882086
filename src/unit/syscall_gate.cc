// See syscall_gate.h. Signal safe; compiled without vector registers.
#include "unit/syscall_gate.h"

#include <signal.h>

#include "unit/context.h"
#include "unit/interpose.h"
#include "unit/signal_set.h"
#include "unit/stub_frame.h"
#include "unit/sys.h"

extern "C" {
constexpr uint64_t auxtrail_window_mask =
    ~(auxtrail::unit::signal_bit(SIGSEGV) | auxtrail::unit::signal_bit(SIGBUS) |
      auxtrail::unit::signal_bit(SIGFPE) | auxtrail::unit::signal_bit(SIGILL) |
      auxtrail::unit::signal_bit(SIGTRAP));
}

namespace auxtrail::unit {
namespace {

constexpr uint64_t kSyscallBytes = 2;

// As syscall_gate.S has them.
constexpr size_t below_top(size_t offset) { return sizeof(StubFrame) - offset; }
static_assert(below_top(offsetof(StubFrame, rdx)) == 16 &&
              below_top(offsetof(StubFrame, rbx)) == 24);
static_assert(below_top(offsetof(StubFrame, rbp)) == 32 &&
              below_top(offsetof(StubFrame, rsi)) == 40);
static_assert(below_top(offsetof(StubFrame, rdi)) == 48 &&
              below_top(offsetof(StubFrame, r8)) == 56);
static_assert(below_top(offsetof(StubFrame, r9)) == 64 &&
              below_top(offsetof(StubFrame, r10)) == 72);
static_assert(below_top(offsetof(StubFrame, r12)) == 88 &&
              below_top(offsetof(StubFrame, r13)) == 96);
static_assert(below_top(offsetof(StubFrame, r14)) == 104 &&
              below_top(offsetof(StubFrame, r15)) == 112);

uint64_t address_of(const char* label) { return reinterpret_cast<uint64_t>(label); }

StubFrame& stub_frame(const Thread& thread) {
  return *reinterpret_cast<StubFrame*>(stub_rsp(thread));
}

// The stack that the gate stands on would be gone behind the call.
bool unmaps_stack(const StubFrame& saved, uint64_t rsp) {
  const auto start = static_cast<uint64_t>(saved.rdi);
  return rsp - start < static_cast<uint64_t>(saved.rsi) + channel::kPageBytes;
}

}  // namespace

bool is_in_gate(const ucontext_t& context) {
  const uint64_t ip = program_register(context, REG_RIP);
  return ip >= address_of(auxtrail_gate_begin) && ip <= address_of(auxtrail_gate_end);
}

bool is_program_call(const ucontext_t& context) {
  const uint64_t ip = program_register(context, REG_RIP);
  return ip >= address_of(auxtrail_gate_syscall) && ip <= address_of(auxtrail_gate_saved);
}

bool call_was_made(const ucontext_t& context) {
  return program_register(context, REG_RIP) > address_of(auxtrail_gate_syscall);
}

bool gate_is_closed(const ucontext_t& context) {
  const uint64_t ip = program_register(context, REG_RIP);
  return ip < address_of(auxtrail_gate_open) || ip == address_of(auxtrail_gate_end);
}

uint64_t gate_position(const Thread& thread, const ucontext_t& context) {
  return call_was_made(context) ? thread.gate_next : thread.gate_next - kSyscallBytes;
}

void leave_gate(Thread& thread, ucontext_t& context) {
  auto& registers = context.uc_mcontext.gregs;
  const bool made = call_was_made(context);
  const bool saved = program_register(context, REG_RIP) >= address_of(auxtrail_gate_saved);
  const uint64_t result = saved ? thread.gate_rax : program_register(context, REG_RAX);
  const uint64_t position = gate_position(thread, context);
  // The five arrive while the mask is closed, too; the frame has the closed one then.
  if (gate_is_closed(context)) signal_mask(context) = thread.saved_mask;
  if (!made) uncount_system_call(thread);
  begin_native(thread);
  copy_program_registers(thread, context);
  registers[REG_RIP] = static_cast<greg_t>(position);
  if (made) {
    registers[REG_RAX] = static_cast<greg_t>(result);
    registers[REG_RCX] = static_cast<greg_t>(position);
    registers[REG_R11] = registers[REG_EFL];
  }
  thread.gate_rsp = 0;
  tls_block.state = UnitState::kIdle;
}

bool fits_gate(const Thread& thread) {
  switch (tls_block.rax) {
    case SYS_rt_sigreturn:
    case SYS_clone:
    case SYS_clone3:
    case SYS_fork:
    case SYS_vfork:
    case SYS_arch_prctl:
    case SYS_sigaltstack:  // the way out of the cache sets the stack that the way in has seen
    case SYS_seccomp:
    case SYS_ptrace:
      return false;
    case SYS_prctl:
      return !forbids_our_calls(static_cast<int>(stub_frame(thread).rdi));
    case SYS_munmap:
    case SYS_mremap:
      return !unmaps_stack(stub_frame(thread), thread.saved_rsp);
    default:
      return true;
  }
}

void make_system_call(Thread& thread, uint64_t pc) {
  StubFrame& saved = stub_frame(thread);
  const auto number = static_cast<long>(tls_block.rax);
  auxtrail_before_syscall(number, saved.rdi, saved.rsi, saved.rdx, saved.r10, saved.r8);
  SyscallResult result{0, 0};
  if (number == SYS_rt_sigaction) {
    result = auxtrail_rt_sigaction(number, saved.rdi, saved.rsi, saved.rdx, saved.r10);
  }
  thread.gate_next = pc + kSyscallBytes;
  thread.gate_rax = static_cast<uint64_t>(result.value);
  if (result.taken == 0) {
    thread.gate_rax = static_cast<uint64_t>(number);
    tls_block.state = UnitState::kSyscall;
    auxtrail_syscall_gate(&thread);
    tls_block.state = UnitState::kWindow;
  }
  tls_block.rax = thread.gate_rax;
  tls_block.rcx = thread.gate_next;
  saved.r11 = saved.flags;
}

}  // namespace auxtrail::unit
