// A handler that stays on a large alternate stack: the kernel's frame there, with the interrupted
// program's registers, must stay what it is, whatever else arrives meanwhile.
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "check.h"

namespace {

constexpr size_t kStackBytes = 262144;
constexpr size_t kKernelContextBytes = 304;  // of ucontext_t
constexpr int kRounds = 400;
uint64_t g_sum = 0;

void OnAlternate(int, siginfo_t*, void* context) {
  unsigned char before[kKernelContextBytes];
  std::memcpy(before, context, sizeof before);
  for (int round = 0; round < kRounds; ++round) {
    g_sum += check::Burn(static_cast<uint64_t>(round), 4000);
    CHECK(std::memcmp(before, context, sizeof before) == 0);
  }
}

}  // namespace

int main() {
  void* memory =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = kStackBytes;
  CHECK(sigaltstack(&stack, nullptr) == 0);
  struct sigaction action {};
  action.sa_sigaction = OnAlternate;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  CHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
  for (int i = 0; i < 100; ++i) {
    g_sum += check::Burn(static_cast<uint64_t>(i), 100000);
    CHECK(raise(SIGUSR1) == 0);
  }
  std::printf("%016llx\n", check::Llu(g_sum));
  return 0;
}
