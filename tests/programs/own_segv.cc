// A program that lives with its own SIGSEGV: null checks by fault as language runtimes do them. The
// handler skips the load or repairs a register through the ucontext, or leaves by siglongjmp; on
// the normal and on an alternate stack; with SA_RESETHAND, SA_NODEFER and a mask. It checks the
// address, the code and the registers that it is given: they must be the program's own, never a
// tracer's.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "check.h"

namespace {

enum class Mode { kSkip, kRepair, kJump };

Mode g_mode = Mode::kSkip;
sigjmp_buf g_back;
int g_flags = 0;
char* g_alternate = nullptr;
constexpr size_t kAlternateBytes = 65536;
uint64_t g_good = 42;
uint64_t g_faults = 0;
uintptr_t g_expected_address = 0;

extern "C" char LoadInstruction[];
extern "C" char AfterLoad[];
// rdi: address, returns *rdi in rax; every other register holds a known value at the fault.
extern "C" uint64_t LoadAt(uintptr_t address);
asm(R"(
    .text
    .globl LoadAt
    .type LoadAt, @function
LoadAt:
    .cfi_startproc
    push %rbx
    .cfi_adjust_cfa_offset 8
    push %r12
    .cfi_adjust_cfa_offset 8
    mov $0x1111, %ecx
    mov $0x2222, %edx
    mov $0x3333, %ebx
    mov $0x4444, %r8d
    mov $0x5555, %r9d
    mov $0x6666, %r12d
    mov $0x7777, %eax
    test %rdi, %rdi
    jz 1f
    add $1, %ecx
1:  cmp %rcx, %rcx
    stc
    .globl LoadInstruction
LoadInstruction:
    mov (%rdi), %rax
    .globl AfterLoad
AfterLoad:
    setc %cl
    movzbl %cl, %ecx
    add %rcx, %rax
    pop %r12
    .cfi_adjust_cfa_offset -8
    pop %rbx
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size LoadAt, .-LoadAt
)");

bool IsBlocked(int signal) {
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

void CheckRegisters(const greg_t* registers) {
  CHECK(registers[REG_RIP] == reinterpret_cast<greg_t>(LoadInstruction));
  CHECK(registers[REG_RDI] == static_cast<greg_t>(g_expected_address));
  CHECK(registers[REG_RCX] == (g_expected_address == 0 ? 0x1111 : 0x1112));
  CHECK(registers[REG_RDX] == 0x2222 && registers[REG_RBX] == 0x3333);
  CHECK(registers[REG_R8] == 0x4444 && registers[REG_R9] == 0x5555);
  CHECK(registers[REG_R12] == 0x6666 && registers[REG_RAX] == 0x7777);
  CHECK((registers[REG_EFL] & 1) != 0);  // carry, set just before
}

void Handler(int signal, siginfo_t* info, void* context) {
  auto* user = static_cast<ucontext_t*>(context);
  greg_t* registers = user->uc_mcontext.gregs;
  CHECK(signal == SIGSEGV && info->si_signo == SIGSEGV);
  CHECK(reinterpret_cast<uintptr_t>(info->si_addr) == g_expected_address);
  CHECK(info->si_code == (g_expected_address < 4096 ? SEGV_MAPERR : SEGV_ACCERR));
  CheckRegisters(registers);
  char here = 0;
  const bool on_alternate = &here >= g_alternate && &here < g_alternate + kAlternateBytes;
  CHECK(on_alternate == ((g_flags & SA_ONSTACK) != 0));
  CHECK(IsBlocked(SIGSEGV) == ((g_flags & SA_NODEFER) == 0));
  CHECK(IsBlocked(SIGUSR1));
  CHECK(!IsBlocked(SIGUSR2));
  CHECK(sigismember(&user->uc_sigmask, SIGHUP) == 1);   // blocked by main
  CHECK(sigismember(&user->uc_sigmask, SIGUSR1) == 0);  // only while in the handler
  CHECK(sigismember(&user->uc_sigmask, SIGALRM) == 0);
  ++g_faults;
  switch (g_mode) {
    case Mode::kSkip:
      registers[REG_RAX] = 99;
      registers[REG_RIP] = reinterpret_cast<greg_t>(AfterLoad);
      return;
    case Mode::kRepair:
      registers[REG_RDI] = reinterpret_cast<greg_t>(&g_good);
      return;
    case Mode::kJump:
      siglongjmp(g_back, 1);
  }
}

void Install(int flags) {
  g_flags = flags;
  struct sigaction action {};
  action.sa_sigaction = Handler;
  action.sa_flags = SA_SIGINFO | flags;
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGUSR1);
  CHECK(sigaction(SIGSEGV, &action, nullptr) == 0);
  struct sigaction seen {};
  CHECK(sigaction(SIGSEGV, nullptr, &seen) == 0);
  CHECK(seen.sa_sigaction == Handler && (seen.sa_flags & ~0x04000000) == action.sa_flags);
}

uint64_t LoadOrJump(uintptr_t address) {
  if (sigsetjmp(g_back, 1) != 0) return 7;
  return LoadAt(address);
}

uint64_t Rounds(Mode mode, int flags, int rounds, uintptr_t bad) {
  g_mode = mode;
  Install(flags);
  uint64_t sum = 0;
  for (int i = 0; i < rounds; ++i) {
    if ((flags & SA_RESETHAND) != 0) Install(flags);
    g_expected_address = i % 3 == 0 ? bad : 0;
    const bool fault = i % 2 == 0;
    const uintptr_t address = fault ? g_expected_address : reinterpret_cast<uintptr_t>(&g_good);
    sum += LoadOrJump(address) + (check::Burn(static_cast<uint64_t>(i), 300) & 1);
    if ((flags & SA_RESETHAND) != 0 && fault) {
      struct sigaction seen {};
      CHECK(sigaction(SIGSEGV, nullptr, &seen) == 0 && seen.sa_handler == SIG_DFL);
    }
  }
  return sum;
}

}  // namespace

int main() {
  sigset_t block;
  sigemptyset(&block);
  sigaddset(&block, SIGHUP);
  CHECK(sigprocmask(SIG_BLOCK, &block, nullptr) == 0);
  struct sigaction seen {};
  CHECK(sigaction(SIGSEGV, nullptr, &seen) == 0 && seen.sa_handler == SIG_DFL);
  void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED);
  const uintptr_t bad = reinterpret_cast<uintptr_t>(page) + 8;
  g_alternate = static_cast<char*>(std::malloc(kAlternateBytes));
  stack_t stack{};
  stack.ss_sp = g_alternate;
  stack.ss_size = kAlternateBytes;
  CHECK(sigaltstack(&stack, nullptr) == 0);
  struct Case {
    const char* name;
    int flags;
  };
  const Case cases[] = {{"plain", 0},
                        {"alternate stack", SA_ONSTACK},
                        {"no defer", SA_NODEFER},
                        {"no defer, alternate stack", SA_NODEFER | SA_ONSTACK},
                        {"reset", static_cast<int>(SA_RESETHAND)}};
  for (const Case& item : cases) {
    for (Mode mode : {Mode::kSkip, Mode::kRepair, Mode::kJump}) {
      g_faults = 0;
      const uint64_t sum = Rounds(mode, item.flags, 10000, bad);
      std::printf("%s, mode %d: sum %llu, faults %llu\n", item.name, static_cast<int>(mode),
                  check::Llu(sum), check::Llu(g_faults));
    }
  }
  return 0;
}
