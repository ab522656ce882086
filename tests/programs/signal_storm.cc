// SIGALRM, SIGPROF and SIGVTALRM at once, each every millisecond, around integer and floating-point
// work whose result must not change. The handlers clobber every caller-saved register, check the
// masks that they see, and the last part waits in read(2) with SA_RESTART.
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>

#include <cmath>

#include "check.h"

namespace {

volatile sig_atomic_t g_seen[65];
volatile double g_clobber;

bool IsBlocked(int signal) {
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

void Handler(int signal, siginfo_t* info, void* context) {
  CHECK(info->si_signo == signal);
  CHECK(IsBlocked(signal));
  // Handlers nest, and the mask of an outer one stays.
  const auto* user = static_cast<ucontext_t*>(context);
  const bool by_outer = sigismember(&user->uc_sigmask, SIGUSR1) == 1;
  CHECK(IsBlocked(SIGUSR1) == (signal == SIGPROF || by_outer));
  CHECK(!IsBlocked(SIGUSR2));
  g_seen[signal] = g_seen[signal] + 1;
  g_clobber = std::sin(static_cast<double>(g_seen[signal]));
  errno = ERANGE;
}

void Install(int signal) {
  struct sigaction action {};
  action.sa_sigaction = Handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (signal == SIGPROF) sigaddset(&action.sa_mask, SIGUSR1);
  CHECK(sigaction(signal, &action, nullptr) == 0);
}

void SetTimers(int microseconds) {
  const itimerval period{{0, microseconds}, {0, microseconds}};
  CHECK(setitimer(ITIMER_REAL, &period, nullptr) == 0);
  CHECK(setitimer(ITIMER_PROF, &period, nullptr) == 0);
  CHECK(setitimer(ITIMER_VIRTUAL, &period, nullptr) == 0);
}

double Float(int rounds) {
  double sum = 0;
  for (int i = 1; i <= rounds; ++i) {
    sum += std::sqrt(static_cast<double>(i)) / (1.0 + sum * 1e-6);
    if (sum > 1000) sum -= std::floor(sum / 3);
  }
  return sum;
}

// The child writes a byte now and then; the parent's read restarts over the signals.
int ReadAcrossSignals() {
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    for (char c = 0; c < 20; ++c) {
      usleep(3000);
      if (write(ends[1], &c, 1) != 1) _exit(1);
    }
    _exit(0);
  }
  close(ends[1]);
  int sum = 0;
  char byte = 0;
  ssize_t got = 0;
  while ((got = read(ends[0], &byte, 1)) == 1) sum += byte;
  CHECK(got == 0);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  return sum;
}

}  // namespace

int main() {
  for (int signal : {SIGALRM, SIGPROF, SIGVTALRM}) Install(signal);
  SetTimers(1000);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 300; ++i) sum += check::Burn(i, 500000 / 2);
  std::printf("integer %016llx\n", check::Llu(sum));
  std::printf("float %.17g\n", Float(40000000 / 2));
  std::printf("read %d\n", ReadAcrossSignals());
  SetTimers(0);
  for (int signal : {SIGALRM, SIGPROF, SIGVTALRM}) {
    std::printf("%s: %s\n", strsignal(signal), g_seen[signal] > 10 ? "many" : "few");
  }
  return 0;
}
