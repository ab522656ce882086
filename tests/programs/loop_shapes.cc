// Loops of odd shapes: back into the middle of an instruction, onto themselves, one after the other
// with loop and dec; a fault in each round of a loop, with the position and operand checked.
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

#include "check.h"

extern "C" {
uint64_t BackIntoInstruction(uint64_t rounds);
uint64_t TwoLoops(uint64_t rounds);
void OntoItself();
void FaultEachRound(char* pages, uint64_t count);
}
asm(R"(
        .globl BackIntoInstruction
BackIntoInstruction:
        xor %eax, %eax
1:      .byte 0xba                      # mov edx, imm32, whose last bytes are: inc rax; nop
2:      .byte 0x48, 0xff, 0xc0, 0x90
        dec %rdi
        jz 3f
        test $1, %dil
        jnz 2b
        test $2, %dil
        jnz 1b
        jmp 1b
3:      ret
        .globl TwoLoops
TwoLoops:
        mov %rdi, %rcx
        xor %eax, %eax
4:      add %rcx, %rax
        loop 4b
        mov %rdi, %rcx
5:      lea 1(%rax), %rax
        dec %rcx
        jnz 5b
        ret
        .globl FaultEachRound
FaultEachRound:
        incb (%rdi)
        add $4096, %rdi
        dec %rsi
        jnz FaultEachRound
        ret
        .globl OntoItself
OntoItself:
        xor %eax, %eax
6:      jz 6b
        ret
)");

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPages = 512;
int g_faults = 0;

void OnFault(int, siginfo_t* info, void* context) {
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  CHECK(reinterpret_cast<greg_t>(info->si_addr) == registers[REG_RDI]);
  CHECK(registers[REG_RIP] == reinterpret_cast<greg_t>(&FaultEachRound));
  CHECK(mprotect(info->si_addr, kPage, PROT_READ | PROT_WRITE) == 0);
  ++g_faults;
}

// The loop ends because the zero flag goes.
void OnAlarm(int, siginfo_t*, void* context) {
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~greg_t{0x40};
}

void Handle(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  CHECK(sigaction(signal, &action, nullptr) == 0);
}

void Faults() {
  void* mapped = mmap(nullptr, kPages * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  auto* pages = static_cast<char*>(mapped);
  for (int i = 0; i < 60; ++i) {
    CHECK(mprotect(pages, kPages * kPage, PROT_NONE) == 0);
    FaultEachRound(pages, kPages);
  }
  CHECK(mprotect(pages, kPages * kPage, PROT_READ) == 0);
  uint64_t sum = 0;
  for (size_t i = 0; i < kPages; ++i) sum += static_cast<unsigned char>(pages[i * kPage]);
  std::printf("faults %d, sum %llu\n", g_faults, check::Llu(sum));
}

}  // namespace

int main() {
  Handle(SIGSEGV, OnFault);
  Handle(SIGALRM, OnAlarm);
  uint64_t hash = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    hash = hash * 31 + BackIntoInstruction(1000000 + i);
    hash = hash * 31 + TwoLoops(100000 + i);
  }
  std::printf("loops %016llx\n", check::Llu(hash));
  Faults();
  for (int i = 0; i < 60; ++i) {
    const itimerval once{{0, 0}, {0, 3000 + i}};
    CHECK(setitimer(ITIMER_REAL, &once, nullptr) == 0);
    OntoItself();
  }
  std::puts("ended by the alarm");
  return 0;
}
