// Forks from threads while other threads run, lock and allocate. The child is single-threaded,
// computes, starts a thread of its own, and ends; pthread_atfork handlers run in order.
#include <pthread.h>
#include <sys/wait.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "check.h"

namespace {

std::atomic<bool> g_stop{false};
std::atomic<int> g_prepared{0}, g_parent{0};
int g_child = 0;

void Busy(uint64_t seed) {
  while (!g_stop) {
    auto block = std::make_unique<uint64_t[]>(64 + seed % 64);
    block[seed % 64] = check::Burn(seed, 2000);
    check::Keep(block[seed % 64]);
    ++seed;
  }
}

int ChildWork(uint64_t seed) {
  uint64_t from_thread = 0;
  std::thread thread([&] { from_thread = check::Burn(seed, 100000); });
  thread.join();
  const uint64_t own = check::Burn(seed, 100000);
  return own == from_thread && g_child == 1 ? static_cast<int>(own % 100) : 255;
}

int ForkOnce(uint64_t seed) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(ChildWork(seed));
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
  CHECK(WEXITSTATUS(status) != 255);
  return WEXITSTATUS(status);
}

}  // namespace

int main() {
  CHECK(pthread_atfork([] { ++g_prepared; }, [] { ++g_parent; }, [] { ++g_child; }) == 0);
  std::vector<std::thread> busy;
  for (uint64_t i = 0; i < 3; ++i) busy.emplace_back(Busy, i * 1000);
  std::atomic<int> sum{0};
  std::vector<std::thread> forkers;
  for (uint64_t i = 0; i < 2; ++i) {
    forkers.emplace_back([&sum, i] {
      for (uint64_t k = 0; k < 60; ++k) sum += ForkOnce(i * 100 + k);
    });
  }
  for (auto& thread : forkers) thread.join();
  g_stop = true;
  for (auto& thread : busy) thread.join();
  std::printf("sum %d, prepared %d, parent %d\n", sum.load(), g_prepared.load(), g_parent.load());
  return 0;
}
