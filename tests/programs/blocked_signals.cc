// A program that blocks every signal while it computes, and takes them by sigwait, sigtimedwait,
// ppoll, sigsuspend and signalfd. The masks that it reads back are the ones that it set, no call
// ends early for a signal of somebody else's, and what is pending is what it sent itself.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "check.h"

namespace {

volatile sig_atomic_t g_handled = 0;
void Handler(int) { g_handled = g_handled + 1; }

void CheckAllBlocked() {
  sigset_t mask;
  CHECK(sigprocmask(SIG_SETMASK, nullptr, &mask) == 0);
  for (int signal = 1; signal < 65; ++signal) {
    const bool hidden = signal == 32 || signal == 33 || signal == SIGKILL || signal == SIGSTOP;
    if (!hidden) CHECK(sigismember(&mask, signal) == 1);
  }
  sigset_t pending;
  CHECK(sigpending(&pending) == 0);
  for (int signal = 1; signal < 65; ++signal) CHECK(sigismember(&pending, signal) != 1);
}

void Send(int signal) { CHECK(kill(getpid(), signal) == 0); }

void TakeByWait() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR1);
  Send(SIGUSR1);
  int got = 0;
  CHECK(sigwait(&wanted, &got) == 0 && got == SIGUSR1);
  siginfo_t info{};
  const timespec short_time{0, 1000000};
  CHECK(sigtimedwait(&wanted, &info, &short_time) == -1 && errno == EAGAIN);
}

void TakeByPpoll(int signal, const sigset_t* none) {
  Send(signal);
  const int before = g_handled;
  CHECK(ppoll(nullptr, 0, nullptr, none) == -1 && errno == EINTR);
  CHECK(g_handled == before + 1);
  const timespec short_time{0, 1000000};
  CHECK(ppoll(nullptr, 0, &short_time, none) == 0);
}

void TakeBySuspend(int signal, const sigset_t* none) {
  Send(signal);
  const int before = g_handled;
  CHECK(sigsuspend(none) == -1 && errno == EINTR);
  CHECK(g_handled == before + 1);
}

void TakeBySignalfd(int fd) {
  Send(SIGUSR1);
  signalfd_siginfo info{};
  CHECK(read(fd, &info, sizeof info) == sizeof info);
  CHECK(info.ssi_signo == SIGUSR1);
  CHECK(read(fd, &info, sizeof info) == -1 && errno == EAGAIN);
}

}  // namespace

int main() {
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  struct sigaction action {};
  action.sa_handler = Handler;
  CHECK(sigaction(SIGUSR2, &action, nullptr) == 0);
  CHECK(sigaction(SIGFPE, &action, nullptr) == 0);
  CHECK(sigprocmask(SIG_SETMASK, &all, nullptr) == 0);
  const int fd = signalfd(-1, &all, SFD_NONBLOCK | SFD_CLOEXEC);
  CHECK(fd >= 0);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    sum += check::Burn(i, 500000);
    CheckAllBlocked();
    TakeByWait();
    for (const int signal : {SIGUSR2, SIGFPE}) {
      TakeByPpoll(signal, &none);
      TakeBySuspend(signal, &none);
    }
    TakeBySignalfd(fd);
    CheckAllBlocked();
  }
  std::printf("sum %016llx, handled %d\n", check::Llu(sum), static_cast<int>(g_handled));
  return 0;
}
