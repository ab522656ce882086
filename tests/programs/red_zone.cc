// Leaf functions that keep their data in the 128 bytes below the stack pointer, as the ABI lets
// them, over loops with branches: whoever pushes anything below rsp (instrumentation, a signal
// frame built at the wrong place) destroys it.
#include <signal.h>
#include <sys/time.h>

#include "check.h"

namespace {

// Fills the red zone from `pattern`, spins `rounds` times with conditional and indirect branches,
// and returns how many of the 16 words have changed.
extern "C" uint64_t RedZone(uint64_t pattern, uint64_t rounds);
asm(R"(
    .text
    .globl RedZone
    .type RedZone, @function
RedZone:
    mov %rdi, %rax
    mov $-128, %rcx
1:  mov %rax, (%rsp,%rcx)
    rol $5, %rax
    add $8, %rcx
    jnz 1b
    lea 3f(%rip), %rdx
    lea 4f(%rip), %r8
2:  test $1, %sil
    cmovz %r8, %rdx
    jmp *%rdx
3:  add $1, %r9
4:  lea 3b(%rip), %rdx
    jmp *Next(%rip)
5:  dec %rsi
    jnz 2b
    xor %r9d, %r9d
    mov $-128, %rcx
    mov %rdi, %rax
6:  cmp %rax, (%rsp,%rcx)
    je 7f
    add $1, %r9
7:  rol $5, %rax
    add $8, %rcx
    jnz 6b
    mov %r9, %rax
    ret
    .size RedZone, .-RedZone
    .section .data.rel, "aw"
    .p2align 3
Next:
    .quad 5b
    .text
)");

volatile sig_atomic_t g_signals = 0;

}  // namespace

int main() {
  struct sigaction action {};
  action.sa_handler = [](int) {
    volatile char frame[256];
    for (int i = 0; i < 256; ++i) frame[i] = 1;
    g_signals = g_signals + frame[7];
  };
  action.sa_flags = SA_RESTART;
  CHECK(sigaction(SIGALRM, &action, nullptr) == 0);
  const itimerval period{{0, 3000}, {0, 3000}};
  CHECK(setitimer(ITIMER_REAL, &period, nullptr) == 0);
  uint64_t pattern = 0x0123456789abcdefu;
  for (int i = 0; i < 4000; ++i) {
    pattern = check::Next(pattern);
    CHECK(RedZone(pattern, 100000) == 0);
  }
  std::printf("kept, last pattern %016llx\n", check::Llu(pattern));
  return 0;
}
