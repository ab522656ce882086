// Vector and floating-point state that lives across long loops: xmm0-15, ymm, zmm and mask
// registers where the CPU has them, the x87 stack with its control word, MXCSR with every rounding
// mode and sticky flags. The loops hold everything in registers, so that a window which opens or
// ends anywhere must leave all of it alone.
#include <immintrin.h>

#include <cfenv>
#include <cmath>

#include "check.h"

namespace {

// Loads every register of a kind with its own pattern, spins with branches, stores them, compares.
#define SPIN                                               \
  "mov %[rounds], %%rcx\n"                                 \
  "1: test $3, %%cl\n jz 2f\n add $1, %%rax\n"             \
  "2: call 4f\n dec %%rcx\n jnz 1b\n jmp 5f\n"             \
  "4: test $7, %%cl\n jnz 3f\n xor %%rcx, %%rax\n3: ret\n" \
  "5:\n"

#define LOAD(kind, step, i) "vmovdqu64 " #i "*" #step "(%[in]), %%" kind #i "\n"
#define STORE(kind, step, i) "vmovdqu64 %%" kind #i ", " #i "*" #step "(%[out])\n"
#define LOADY(i) "vmovdqu " #i "*32(%[in]), %%ymm" #i "\n"
#define STOREY(i) "vmovdqu %%ymm" #i ", " #i "*32(%[out])\n"
#define LOADX(i) "movdqu " #i "*16(%[in]), %%xmm" #i "\n"
#define STOREX(i) "movdqu %%xmm" #i ", " #i "*16(%[out])\n"
#define EACH16(F) \
  F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15)
#define EACH16HIGH(F) \
  F(16) F(17) F(18) F(19) F(20) F(21) F(22) F(23) F(24) F(25) F(26) F(27) F(28) F(29) F(30) F(31)
#define LOADZ(i) LOAD("zmm", 64, i)
#define STOREZ(i) STORE("zmm", 64, i)
#define XMMS                                                                               \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define ZMMS                                                                                      \
  XMMS, "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", \
      "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31"

alignas(64) unsigned char g_in[2048], g_out[2048];

void CheckSame(size_t bytes) {
  CHECK(std::memcmp(g_in, g_out, bytes) == 0);
  std::memset(g_out, 0, sizeof g_out);
}

// The assembly calls: the stack below the red zone is used, so the functions must not be leaves.
#define SKIP_RED_ZONE "sub $256, %%rsp\n"
#define BACK "add $256, %%rsp\n"

__attribute__((noinline)) void Sse(uint64_t rounds) {
  asm volatile(SKIP_RED_ZONE EACH16(LOADX) SPIN EACH16(STOREX) BACK
               :
               : [in] "r"(g_in), [out] "r"(g_out), [rounds] "r"(rounds)
               : "rax", "rcx", "memory", "cc", XMMS);
  CheckSame(256);
}

__attribute__((noinline, target("avx"))) void Avx(uint64_t rounds) {
  asm volatile(SKIP_RED_ZONE EACH16(LOADY) SPIN EACH16(STOREY) "vzeroupper\n" BACK
               :
               : [in] "r"(g_in), [out] "r"(g_out), [rounds] "r"(rounds)
               : "rax", "rcx", "memory", "cc", XMMS);
  CheckSame(512);
}

__attribute__((noinline, target("avx512f,avx512bw"))) void Avx512(uint64_t rounds) {
  uint64_t masks = 0;
  asm volatile(
      SKIP_RED_ZONE EACH16(LOADZ)
          EACH16HIGH(LOADZ) "kmovq 8(%[in]), %%k1\n kmovq 16(%[in]), %%k7\n" SPIN EACH16(STOREZ)
              EACH16HIGH(STOREZ) "kxorq %%k1, %%k7, %%k2\n kmovq %%k2, %[masks]\n vzeroupper\n" BACK
      : [masks] "=&r"(masks)
      : [in] "r"(g_in), [out] "r"(g_out), [rounds] "r"(rounds)
      : "rax", "rcx", "memory", "cc", "k1", "k2", "k7", ZMMS);
  uint64_t first = 0, second = 0;
  std::memcpy(&first, g_in + 8, 8);
  std::memcpy(&second, g_in + 16, 8);
  CHECK(masks == (first ^ second));
  CheckSame(2048);
}

// Eight values on the x87 stack while the loop runs, in a precision and rounding of the program's
// own.
__attribute__((noinline)) void X87(uint64_t rounds, uint16_t control) {
  uint16_t old = 0, seen = 0;
  long double out[8];
  asm volatile(
      "fnstcw %[old]\n fldcw %[control]\n"
      "fld1\n fldpi\n fldl2e\n fldln2\n fldlg2\n fldl2t\n fldz\n fld1\n" SKIP_RED_ZONE SPIN BACK
      "fnstcw %[seen]\n"
      "fstpt (%[out])\n fstpt 16(%[out])\n fstpt 32(%[out])\n fstpt 48(%[out])\n"
      "fstpt 64(%[out])\n fstpt 80(%[out])\n fstpt 96(%[out])\n fstpt 112(%[out])\n"
      "fldcw %[old]\n"
      : [old] "=m"(old), [seen] "=m"(seen)
      : [out] "r"(out), [rounds] "r"(rounds), [control] "m"(control)
      : "rax", "rcx", "memory", "cc", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)",
        "st(7)");
  CHECK((seen & 0xf3f) == (control & 0xf3f));
  CHECK(out[0] == 1.0L && out[1] == 0.0L && out[7] == 1.0L);
  CHECK(std::fabs(static_cast<double>(out[6]) - 3.141592653589793) < 1e-6);
}

// Sums with every rounding mode; the sums differ in the last bits, each is the same every time.
void Rounding(uint64_t rounds) {
  const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
  for (int mode : modes) {
    CHECK(std::fesetround(mode) == 0);
    std::feclearexcept(FE_ALL_EXCEPT);
    volatile double sum = 0;
    volatile long double long_sum = 0;
    for (uint64_t i = 1; i <= rounds; ++i) {
      sum = sum + 1.0 / static_cast<double>(i);
      if (i % 4 == 0) long_sum = long_sum + 1.0L / static_cast<long double>(i);
    }
    CHECK(std::fegetround() == mode);
    CHECK(std::fetestexcept(FE_ALL_EXCEPT) == FE_INEXACT);
    const double value = sum;
    const auto long_value = static_cast<double>(long_sum);
    CHECK(std::fesetround(FE_TONEAREST) == 0);
    std::printf("rounding %#x: %a %a\n", mode, value, long_value);
  }
}

// Flush-to-zero, denormals-are-zero and sticky flags stay over the loop.
void Mxcsr(uint64_t rounds) {
  const unsigned wanted = 0x1f80 | 0x8040 | 0x0020;
  _mm_setcsr(wanted);
  check::Keep(check::Burn(3, rounds));
  CHECK(_mm_getcsr() == wanted);
  _mm_setcsr(0x1f80);
}

}  // namespace

int main() {
  uint64_t state = 99;
  for (unsigned char& byte : g_in)
    byte = static_cast<unsigned char>((state = check::Next(state)) >> 20);
  constexpr uint64_t kRounds = 1500000;
  for (int i = 0; i < 20; ++i) Sse(kRounds);
  if (__builtin_cpu_supports("avx")) {
    for (int i = 0; i < 20; ++i) Avx(kRounds);
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) {
    for (int i = 0; i < 20; ++i) Avx512(kRounds);
  }
  for (const uint16_t control :
       {uint16_t{0x37f}, uint16_t{0x27f}, uint16_t{0x07f}, uint16_t{0xf7f}, uint16_t{0x77f}})
    X87(4 * kRounds, control);
  Mxcsr(30000000);
  Rounding(6000000);
  std::printf("all kept\n");
  return 0;
}
