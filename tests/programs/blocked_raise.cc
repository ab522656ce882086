// A thread sends itself signals that it blocks: each waits until it is unblocked, however the
// thread spends the time in between.
#include <signal.h>
#include <unistd.h>

#include "check.h"

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGUSR1};

volatile sig_atomic_t g_count = 0;

void Count(int) { g_count = g_count + 1; }

void Round(int signal, uint64_t seed) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  const int before = g_count;
  CHECK(sigprocmask(SIG_BLOCK, &set, nullptr) == 0);
  uint64_t sum = check::Burn(seed, 1500000);
  CHECK(raise(signal) == 0);
  CHECK(g_count == before);
  sum += check::Burn(seed + 1, 500000);
  CHECK(getppid() > 0);
  CHECK(g_count == before);
  sigset_t pending;
  CHECK(sigpending(&pending) == 0 && sigismember(&pending, signal) == 1);
  CHECK(sigprocmask(SIG_UNBLOCK, &set, nullptr) == 0);
  CHECK(g_count == before + 1);
  check::Keep(sum);
}

}  // namespace

int main() {
  for (const int signal : kSignals) {
    struct sigaction action {};
    action.sa_handler = Count;
    CHECK(sigaction(signal, &action, nullptr) == 0);
    for (uint64_t i = 0; i < 10; ++i) Round(signal, i);
    std::printf("%d: %d\n", signal, static_cast<int>(g_count));
  }
  return 0;
}
