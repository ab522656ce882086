// A program that single-steps itself with the trap flag, as some debuggers and copy protections do:
// its SIGTRAP handler must see exactly the instructions of its own function, one by one.
#include <signal.h>
#include <ucontext.h>

#include "check.h"

namespace {

extern "C" uint64_t Stepped();
extern "C" char StepStart[];
extern "C" char StepEnd[];
asm(R"(
    .text
    .globl Stepped
    .type Stepped, @function
Stepped:
    pushfq
    orq $0x100, (%rsp)
    popfq
    .globl StepStart
StepStart:
    mov $5, %ecx
    xor %eax, %eax
1:  add %rcx, %rax
    dec %ecx
    jnz 1b
    pushfq
    andq $~0x100, (%rsp)
    popfq
    .globl StepEnd
StepEnd:
    ret
    .size Stepped, .-Stepped
)");

volatile uint64_t g_steps = 0;
volatile uint64_t g_hash = 0;

void Handler(int, siginfo_t* info, void* context) {
  const auto* user = static_cast<ucontext_t*>(context);
  const auto ip = static_cast<uintptr_t>(user->uc_mcontext.gregs[REG_RIP]);
  CHECK(info->si_code == TRAP_TRACE || info->si_code == TRAP_BRKPT);
  CHECK(ip > reinterpret_cast<uintptr_t>(StepStart) && ip <= reinterpret_cast<uintptr_t>(StepEnd));
  g_steps = g_steps + 1;
  g_hash = g_hash * 31 + (ip - reinterpret_cast<uintptr_t>(StepStart));
}

}  // namespace

int main() {
  struct sigaction action {};
  action.sa_sigaction = Handler;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  CHECK(sigaction(SIGTRAP, &action, nullptr) == 0);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    sum += Stepped() + (check::Burn(i, 10000) & 1);
  }
  std::printf("sum %llu, steps %llu, hash %016llx\n", check::Llu(sum), check::Llu(g_steps),
              check::Llu(g_hash));
  return 0;
}
