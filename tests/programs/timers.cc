// Timers of every kind, with exact counts: timerfd, timer_create with a signal and with a thread,
// alarm, and the CPU-time clocks, which must not run ahead of the real one. A tracer's own timers
// must not be among them.
#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>

#include <atomic>

#include "check.h"

namespace {

std::atomic<int> g_by_signal{0}, g_by_thread{0}, g_alarms{0};

void BySignal(int, siginfo_t* info, void*) {
  CHECK(info->si_code == SI_TIMER && info->si_value.sival_int == 77);
  g_by_signal += 1 + info->si_overrun;
}

void ByThread(sigval value) {
  CHECK(value.sival_int == 88);
  ++g_by_thread;
}

timer_t Start(clockid_t clock, sigevent& event, long first_ns, long period_ns) {
  timer_t timer{};
  CHECK(timer_create(clock, &event, &timer) == 0);
  const itimerspec when{{0, period_ns}, {0, first_ns}};
  CHECK(timer_settime(timer, 0, &when, nullptr) == 0);
  return timer;
}

void SignalTimers() {
  struct sigaction action {};
  action.sa_sigaction = BySignal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  CHECK(sigaction(SIGRTMIN, &action, nullptr) == 0);
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGRTMIN;
  event.sigev_value.sival_int = 77;
  for (clockid_t clock : {CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID}) {
    g_by_signal = 0;
    timer_t timer = Start(clock, event, 1000000, 1000000);
    while (g_by_signal < 50) check::Keep(check::Burn(1, 10000));
    CHECK(timer_delete(timer) == 0);
    std::printf("timer on clock %d: reached 50\n", clock);
  }
  // One shot each, so that the count is exact.
  event.sigev_notify = SIGEV_THREAD;
  event.sigev_value.sival_int = 88;
  event.sigev_notify_function = ByThread;
  timer_t timers[20];
  for (timer_t& timer : timers) timer = Start(CLOCK_MONOTONIC, event, 2000000, 0);
  while (g_by_thread < 20) check::Keep(check::Burn(1, 10000));
  for (timer_t& timer : timers) CHECK(timer_delete(timer) == 0);
  check::Keep(check::Burn(1, 10000000));
  std::printf("by thread %d\n", g_by_thread.load());
}

void TimerDescriptor() {
  const int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  CHECK(fd >= 0);
  const itimerspec when{{0, 1000000}, {0, 1000000}};
  CHECK(timerfd_settime(fd, 0, &when, nullptr) == 0);
  uint64_t total = 0;
  while (total < 100) {
    uint64_t expirations = 0;
    CHECK(read(fd, &expirations, sizeof expirations) == sizeof expirations);
    CHECK(expirations > 0);
    total += expirations;
    check::Keep(check::Burn(total, 20000));
  }
  close(fd);
  std::printf("timerfd: reached 100\n");
}

void ReadBack() {
  itimerval left{};
  for (auto which : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
    CHECK(getitimer(which, &left) == 0);
    CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_usec == 0);
    CHECK(left.it_interval.tv_sec == 0 && left.it_interval.tv_usec == 0);
  }
}

void Alarm() {
  struct sigaction action {};
  action.sa_handler = [](int) { ++g_alarms; };
  CHECK(sigaction(SIGALRM, &action, nullptr) == 0);
  CHECK(alarm(100) == 0);
  check::Keep(check::Burn(1, 10000000));
  CHECK(alarm(0) >= 95);
  const itimerval once{{0, 0}, {0, 5000}};
  CHECK(setitimer(ITIMER_REAL, &once, nullptr) == 0);
  while (g_alarms == 0) check::Keep(check::Burn(1, 1000));
  std::printf("alarms %d\n", g_alarms.load());
}

void Clocks() {
  uint64_t last = 0;
  const uint64_t real_start = check::NowNs(), cpu_start = check::NowNs(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < 2000000; ++i) {
    const uint64_t now = check::NowNs();
    CHECK(now >= last);
    last = now;
  }
  const uint64_t real = check::NowNs() - real_start;
  const uint64_t cpu = check::NowNs(CLOCK_THREAD_CPUTIME_ID) - cpu_start;
  CHECK(cpu <= real + 50000000);
  std::printf("clocks in order\n");
}

}  // namespace

int main() {
  ReadBack();
  SignalTimers();
  TimerDescriptor();
  Alarm();
  ReadBack();
  Clocks();
  return 0;
}
