// Signals that an instruction can raise, but that somebody sends: SIGSEGV, SIGBUS, SIGFPE, SIGILL,
// SIGSYS. Their handlers see the program at an instruction of its own.
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <thread>

#include "check.h"

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS};
constexpr int kEach = 400;

std::atomic<uint64_t> g_seen[65];
std::atomic<uint64_t> g_elsewhere{0};

// All of the loop, so that a position outside is one that the program does not have.
extern "C" uint64_t HeldLoop(uint64_t rounds, const std::atomic<bool>* stop,
                             std::atomic<bool>* started);
extern "C" const char held_loop_end[];
asm(R"(
        .globl HeldLoop
HeldLoop:
        xor %eax, %eax
        movb $1, (%rdx)
1:      mov %rdi, %rcx
2:      lea 1(%rax), %rax
        dec %rcx
        jnz 2b
        cmpb $0, (%rsi)
        je 1b
        ret
        .globl held_loop_end
held_loop_end:
)");

void OnSignal(int signal, siginfo_t* info, void* context) {
  const auto ip =
      static_cast<uint64_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  const bool inside =
      ip >= reinterpret_cast<uint64_t>(&HeldLoop) && ip < reinterpret_cast<uint64_t>(held_loop_end);
  if (!inside) g_elsewhere.fetch_add(1);
  if (info->si_code <= 0) g_seen[signal].fetch_add(1);
}

}  // namespace

int main() {
  for (const int signal : kSignals) {
    struct sigaction action {};
    action.sa_sigaction = OnSignal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigfillset(&action.sa_mask);  // one at a time
    CHECK(sigaction(signal, &action, nullptr) == 0);
  }
  std::atomic<bool> started{false};
  std::atomic<bool> stop{false};
  std::thread target([&] { HeldLoop(1000, &stop, &started); });
  while (!started) usleep(1000);
  usleep(20000);
  for (uint64_t i = 1; i <= kEach; ++i) {
    for (const int signal : kSignals) {
      CHECK(pthread_kill(target.native_handle(), signal) == 0);
      while (g_seen[signal] < i) sched_yield();
    }
  }
  stop = true;
  target.join();
  for (const int signal : kSignals) {
    std::printf("%d: %llu\n", signal, check::Llu(g_seen[signal]));
  }
  std::printf("elsewhere %llu\n", check::Llu(g_elsewhere));
  return 0;
}
