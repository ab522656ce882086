// SIGFPE, SIGILL and SIGBUS with handlers that repair and go on, and check what they are told:
// division by zero, ud2, int-overflow of idiv, an unmasked SSE exception, a page behind the end of
// a file.
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <xmmintrin.h>

#include <cfenv>

#include "check.h"

namespace {

extern "C" char DivideAt[], IllegalAt[], AfterIllegal[];
extern "C" uint64_t Divide(uint64_t dividend, uint64_t divisor);
extern "C" uint64_t Illegal(uint64_t value);
asm(R"(
    .text
    .globl Divide
    .type Divide, @function
Divide:
    mov %rdi, %rax
    xor %edx, %edx
    .globl DivideAt
DivideAt:
    div %rsi
    ret
    .globl Illegal
    .type Illegal, @function
Illegal:
    lea 1(%rdi), %rax
    .globl IllegalAt
IllegalAt:
    ud2
    .globl AfterIllegal
AfterIllegal:
    add %rdi, %rax
    ret
)");

volatile uint64_t g_divides = 0, g_illegal = 0, g_bus = 0, g_float = 0;
char* g_file_page = nullptr;
size_t g_page = 4096;

void OnDivide(int, siginfo_t* info, void* context) {
  auto* user = static_cast<ucontext_t*>(context);
  if (info->si_code == FPE_FLTDIV) {
    g_float = g_float + 1;
    user->uc_mcontext.fpregs->mxcsr = 0x1f80;
    return;
  }
  CHECK(info->si_code == FPE_INTDIV);
  CHECK(user->uc_mcontext.gregs[REG_RIP] == reinterpret_cast<greg_t>(DivideAt));
  CHECK(info->si_addr == DivideAt);
  user->uc_mcontext.gregs[REG_RSI] = 1;
  g_divides = g_divides + 1;
}

void OnIllegal(int, siginfo_t* info, void* context) {
  auto* user = static_cast<ucontext_t*>(context);
  CHECK(info->si_code == ILL_ILLOPN || info->si_code == ILL_ILLOPC);
  CHECK(user->uc_mcontext.gregs[REG_RIP] == reinterpret_cast<greg_t>(IllegalAt));
  CHECK(info->si_addr == IllegalAt);
  user->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(AfterIllegal);
  g_illegal = g_illegal + 1;
}

void OnBus(int, siginfo_t* info, void*) {
  CHECK(info->si_code == BUS_ADRERR);
  CHECK(info->si_addr == g_file_page + g_page + 16);
  g_bus = g_bus + 1;
  void* at = mmap(g_file_page + g_page, g_page, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  CHECK(at == g_file_page + g_page);
}

void Install(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  CHECK(sigaction(signal, &action, nullptr) == 0);
}

void BusRound(FILE* file) {
  void* at = mmap(nullptr, 2 * g_page, PROT_READ, MAP_SHARED, fileno(file), 0);
  CHECK(at != MAP_FAILED);
  g_file_page = static_cast<char*>(at);
  CHECK(*static_cast<volatile char*>(g_file_page + g_page + 16) == 0);
  CHECK(munmap(at, 2 * g_page) == 0);
}

double FloatRound(double by) {
  _mm_setcsr(0x1f80 & ~0x200u);  // unmask division by zero
  volatile double zero = by;
  volatile double result = 1.0 / zero;  // faults once, repeats masked
  CHECK(_mm_getcsr() == (0x1f80u | 0x4u));
  _mm_setcsr(0x1f80);
  return result;
}

}  // namespace

int main() {
  Install(SIGFPE, OnDivide);
  Install(SIGILL, OnIllegal);
  Install(SIGBUS, OnBus);
  FILE* file = std::tmpfile();
  CHECK(file != nullptr && ftruncate(fileno(file), static_cast<off_t>(g_page)) == 0);
  uint64_t sum = 0;
  double infinite = 0;
  for (uint64_t i = 1; i <= 40000; ++i) {
    sum += check::Burn(i, 1500) & 3;
    if (i % 2 == 0) sum += Divide(i, i % 4 == 0 ? 0 : 3);
    if (i % 3 == 0) sum += Illegal(i);
    if (i % 50 == 0) BusRound(file);
    if (i % 20 == 0) infinite = FloatRound(0.0);
  }
  std::printf("sum %llu, divides %llu, illegal %llu, bus %llu, float %llu %g\n", check::Llu(sum),
              check::Llu(g_divides), check::Llu(g_illegal), check::Llu(g_bus), check::Llu(g_float),
              infinite);
  return 0;
}
