// A handler that writes down what it is shown of the code that it interrupts, and leaves registers
// of its own behind; under it a loop of work, vectors and short system calls. On its own it gets no
// signal: the truth tests send them, at all kinds of instructions.
#include <fcntl.h>
#include <immintrin.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "check.h"

namespace {

constexpr size_t kKept = 16;

struct Shown {
  greg_t registers[REG_EFL + 1];  // all but those that tell of the last fault
  uint64_t mask;
  int signal;
  int code;
};
Shown g_shown[kKept];
volatile sig_atomic_t g_count = 0;

void Handle(int signal, siginfo_t* info, void* frame) {
  const auto* const context = static_cast<const ucontext_t*>(frame);
  Shown& shown = g_shown[static_cast<size_t>(g_count) % kKept];
  for (int i = 0; i <= REG_EFL; ++i) shown.registers[i] = context->uc_mcontext.gregs[i];
  shown.registers[REG_CSGSFS] = 0;
  std::memcpy(&shown.mask, &context->uc_sigmask, sizeof shown.mask);
  shown.signal = signal;
  shown.code = info->si_code;
  g_count = g_count + 1;
  asm volatile("pcmpeqd %%xmm0, %%xmm0; pcmpeqd %%xmm9, %%xmm9; std; cld" : : : "xmm0", "xmm9");
}

__attribute__((noinline)) uint64_t Mix(uint64_t value, int rounds) {
  __m128i vector = _mm_set1_epi64x(static_cast<long long>(value));
  for (int i = 0; i < rounds; ++i) {
    vector = _mm_add_epi64(vector, _mm_slli_epi64(vector, 7));
    vector = _mm_xor_si128(vector, _mm_srli_epi64(vector, 9));
  }
  return static_cast<uint64_t>(_mm_cvtsi128_si64(vector));
}

}  // namespace

int main() {
  struct sigaction action {};
  action.sa_sigaction = Handle;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaddset(&action.sa_mask, SIGUSR2);
  CHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
  const int null = open("/dev/null", O_WRONLY);
  CHECK(null >= 0);
  uint64_t sum = 1;
  char text[64];
  for (int i = 0; i < 20000; ++i) {
    sum += check::Burn(sum, 10) ^ Mix(sum, 4);
    std::memcpy(text, &sum, sizeof sum);
    CHECK(write(null, text, sizeof text) == sizeof text);
    if (i % 3 == 0) CHECK(lseek(null, 0, SEEK_CUR) == 0);
    if (i % 5 == 0) CHECK(fcntl(null, F_GETFD) == 0);
    if (i % 7 == 0) CHECK(close(-1) == -1 && errno == EBADF);
  }
  std::printf("%llx, %d signals\n", static_cast<unsigned long long>(sum),
              static_cast<int>(g_count));
  return 0;
}
