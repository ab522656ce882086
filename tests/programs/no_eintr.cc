// System calls that end with EINTR when any handler has run, even one with SA_RESTART: nanosleep,
// poll, select, epoll_wait, sem_timedwait, sigtimedwait, futex, msgrcv. This program has no handler
// at all, so none of them may ever do. And reads and writes of pipes must never come back short.
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>

#include <thread>
#include <vector>

#include "check.h"

namespace {

void Sleepers(uint64_t round) {
  timespec rest{};
  const timespec nap{0, 20000};
  CHECK(nanosleep(&nap, &rest) == 0);
  CHECK(poll(nullptr, 0, 0) == 0);
  timeval zero{0, 10};
  CHECK(select(0, nullptr, nullptr, nullptr, &zero) == 0);
  const int epoll = epoll_create1(0);
  epoll_event event{};
  CHECK(epoll_wait(epoll, &event, 1, 0) == 0);
  close(epoll);
  sem_t semaphore;
  sem_init(&semaphore, 0, 0);
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  CHECK(sem_timedwait(&semaphore, &until) == -1 && errno == ETIMEDOUT);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  const timespec none{0, 1000};
  CHECK(sigtimedwait(&set, nullptr, &none) == -1 && errno == EAGAIN);
  CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, nullptr) == 0);
  check::Keep(check::Burn(round, 20000));
}

// Large transfers over a pipe: a short count means that somebody interrupted.
uint64_t Transfer(uint64_t blocks) {
  constexpr size_t kBytes = 1 << 20;
  int ends[2];
  CHECK(pipe(ends) == 0);
  std::thread writer([&] {
    std::vector<uint64_t> block(kBytes / 8);
    for (uint64_t i = 0; i < blocks; ++i) {
      for (size_t k = 0; k < block.size(); k += 64) block[k] = i * k;
      CHECK(write(ends[1], block.data(), kBytes) == static_cast<ssize_t>(kBytes));
    }
    close(ends[1]);
  });
  uint64_t sum = 0, total = 0;
  std::vector<uint64_t> block(kBytes / 8);
  while (true) {
    const ssize_t got = read(ends[0], block.data(), kBytes);
    CHECK(got >= 0);
    if (got == 0) break;
    total += static_cast<uint64_t>(got);
    sum += check::Burn(static_cast<uint64_t>(total), 100) & 0;
  }
  writer.join();
  close(ends[0]);
  return total + sum;
}

}  // namespace

int main() {
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([] {
      for (uint64_t round = 0; round < 2000; ++round) Sleepers(round);
    });
  }
  for (auto& thread : threads) thread.join();
  std::printf("transferred %llu\n", check::Llu(Transfer(300)));
  return 0;
}
