// Signals that threads send each other by the ten thousand: pthread_kill, tgkill, and real-time
// signals with values that must arrive complete and in order. Handlers check their mask, change it,
// nest, and leave errno as it was for the code that they interrupt; threads with a signal blocked
// never see it.
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr int kThreads = 4;
constexpr int kToSelf = 10000;
constexpr int kToNeighbour = 80;

struct PerThread {
  std::atomic<int> received{0};
  std::atomic<int> nested{0};
  std::atomic<int> other{0};
  std::atomic<bool> ready{false};
  std::atomic<bool> finished{false};
  pthread_t thread{};
};
PerThread g_threads[kThreads];
thread_local PerThread* t_self = nullptr;
std::atomic<int> g_finished{0};
std::atomic<int> g_next_value{0};

bool IsBlocked(int signal) {
  sigset_t mask;
  CHECK(pthread_sigmask(SIG_BLOCK, nullptr, &mask) == 0);
  return sigismember(&mask, signal) == 1;
}

void OnFirst(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  CHECK(signal == SIGUSR1 && info->si_code == SI_TKILL && info->si_pid == getpid());
  CHECK(IsBlocked(SIGUSR1) && IsBlocked(SIGHUP) && !IsBlocked(SIGVTALRM) && IsBlocked(SIGURG));
  CHECK(t_self != nullptr);
  if (t_self->received % 8 == 0) {
    CHECK(pthread_kill(pthread_self(), SIGVTALRM) == 0);  // delivered at once, on top
    sigset_t hup;
    sigemptyset(&hup);
    sigaddset(&hup, SIGHUP);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &hup, nullptr) == 0);
    CHECK(!IsBlocked(SIGHUP));
  }
  ++t_self->received;
  errno = saved;
}

void OnNested(int) {
  CHECK(IsBlocked(SIGUSR1) && IsBlocked(SIGVTALRM) && IsBlocked(SIGURG));
  ++t_self->nested;
}

// From the neighbour: may come on top of the others, or before them.
void OnNeighbour(int) {
  CHECK(IsBlocked(SIGUSR2) && IsBlocked(SIGURG));
  ++t_self->other;
}

void OnRealTime(int, siginfo_t* info, void*) {
  CHECK(info->si_code == SI_QUEUE);
  CHECK(info->si_value.sival_int == g_next_value);
  ++g_next_value;
}

void Install(int signal, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART | flags;
  sigemptyset(&action.sa_mask);
  if (signal == SIGUSR1) sigaddset(&action.sa_mask, SIGHUP);
  CHECK(sigaction(signal, &action, nullptr) == 0);
}

// Computes, sends itself a signal in every round, and sends its neighbour one whenever the last one
// has arrived: standard signals do not queue. Goes on until everybody has sent all of theirs.
void Work(int index) {
  t_self = &g_threads[index];
  PerThread& neighbour = g_threads[(index + 1) % kThreads];
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGURG);
  CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  t_self->thread = pthread_self();
  t_self->ready = true;
  while (!neighbour.ready) sched_yield();
  int to_self = 0, to_neighbour = 0;
  for (uint64_t round = 0; g_finished < kThreads; ++round) {
    errno = 4321;
    check::Keep(check::Burn(round, 2000));
    CHECK(errno == 4321);
    CHECK(!IsBlocked(SIGUSR1) && !IsBlocked(SIGHUP) && !IsBlocked(SIGUSR2) && IsBlocked(SIGURG));
    if (to_self < kToSelf) {
      const int before = t_self->received;
      CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
      CHECK(t_self->received > before);
      ++to_self;
    }
    if (to_neighbour < kToNeighbour && neighbour.other == to_neighbour) {
      ++to_neighbour;
      CHECK(pthread_kill(neighbour.thread, SIGUSR2) == 0);
    }
    if (to_self == kToSelf && to_neighbour == kToNeighbour && t_self->other == kToNeighbour &&
        !t_self->finished) {
      t_self->finished = true;
      ++g_finished;
    }
  }
}

void RealTime() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN + 2);
  for (int round = 0; round < 100; ++round) {
    CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
    for (int k = 0; k < 100; ++k) {
      sigval value{};
      value.sival_int = round * 100 + k;
      CHECK(pthread_sigqueue(pthread_self(), SIGRTMIN + 2, value) == 0);
    }
    check::Keep(check::Burn(1, 100000));
    CHECK(g_next_value == round * 100);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, nullptr) == 0);
    CHECK(g_next_value == round * 100 + 100);
  }
}

}  // namespace

int main() {
  Install(SIGUSR1, OnFirst, 0);
  Install(SIGRTMIN + 2, OnRealTime, 0);
  struct sigaction action {};
  action.sa_handler = OnNested;
  CHECK(sigaction(SIGVTALRM, &action, nullptr) == 0);
  action.sa_handler = OnNeighbour;
  CHECK(sigaction(SIGUSR2, &action, nullptr) == 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(Work, i);
  for (auto& thread : threads) thread.join();
  for (const PerThread& thread : g_threads) {
    std::printf("received %d, nested %d, from the neighbour %d\n", thread.received.load(),
                thread.nested.load(), thread.other.load());
  }
  RealTime();
  std::printf("real-time %d\n", g_next_value.load());
  return 0;
}
