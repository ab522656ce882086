// Alternate signal stacks: what sigaltstack reports inside and outside of handlers, SS_AUTODISARM,
// the smallest size, one per thread, and that a handler without SA_ONSTACK stays on the normal
// stack (with its red zone).
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "check.h"

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

namespace {

thread_local char* t_stack = nullptr;
thread_local size_t t_bytes = 0;
thread_local volatile sig_atomic_t t_on = 0, t_off = 0;

bool IsOnStack() {
  char here = 0;
  char* at = &here;
  return at >= t_stack && at < t_stack + t_bytes;
}

void OnAlternate(int) {
  CHECK(IsOnStack());
  stack_t seen{};
  CHECK(sigaltstack(nullptr, &seen) == 0);
  CHECK(seen.ss_flags == SS_ONSTACK || seen.ss_flags == SS_DISABLE);
  if (seen.ss_flags == SS_ONSTACK) {
    CHECK(seen.ss_sp == t_stack && seen.ss_size == t_bytes);
    stack_t off{};
    off.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&off, nullptr) == -1 && errno == EPERM);
  }
  t_on = t_on + 1;
}

void OnNormal(int) {
  CHECK(!IsOnStack());
  t_off = t_off + 1;
}

void Install(int signal, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  CHECK(sigaction(signal, &action, nullptr) == 0);
}

uint64_t Work(size_t bytes, int flags, uint64_t seed) {
  std::vector<char> memory(bytes);
  t_stack = memory.data();
  t_bytes = bytes;
  stack_t stack{};
  stack.ss_sp = t_stack;
  stack.ss_size = bytes;
  stack.ss_flags = flags;
  CHECK(sigaltstack(&stack, nullptr) == 0);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    sum += check::Burn(seed + i, 40000);
    CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
    CHECK(pthread_kill(pthread_self(), SIGUSR2) == 0);
    stack_t seen{};
    CHECK(sigaltstack(nullptr, &seen) == 0);
    CHECK(seen.ss_sp == t_stack && seen.ss_size == bytes && seen.ss_flags == flags);
  }
  CHECK(t_on == 400 && t_off == 400);
  t_on = 0;
  t_off = 0;
  stack_t off{};
  off.ss_flags = SS_DISABLE;
  CHECK(sigaltstack(&off, nullptr) == 0);
  return sum;
}

}  // namespace

int main() {
  Install(SIGUSR1, OnAlternate, SA_ONSTACK);
  Install(SIGUSR2, OnNormal, 0);
  const auto least = static_cast<size_t>(std::max(sysconf(_SC_MINSIGSTKSZ), 2048L));
  stack_t seen{};
  CHECK(sigaltstack(nullptr, &seen) == 0 && seen.ss_flags == SS_DISABLE);
  std::printf("large %016llx\n", check::Llu(Work(65536, 0, 1)));
  std::printf("disarmed %016llx\n", check::Llu(Work(65536, static_cast<int>(SS_AUTODISARM), 2)));
  std::printf("small %016llx\n", check::Llu(Work(least + 2048, 0, 3)));
  uint64_t results[4];
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&results, i] { results[i] = Work(16384, 0, 10 + i); });
  }
  for (auto& thread : threads) thread.join();
  for (uint64_t result : results) std::printf("thread %016llx\n", check::Llu(result));
  return 0;
}
