// Handlers of a fast timer that leave with siglongjmp, with and without saving the mask; then the
// same from handlers on an alternate stack. The number of signals is fixed, when they come is not.
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "check.h"

namespace {

sigjmp_buf g_back;
volatile sig_atomic_t g_armed = 0;

void Leave(int) {
  if (g_armed == 0) return;
  g_armed = 0;
  siglongjmp(g_back, 7);
}

bool IsBlocked(int signal) {
  sigset_t mask;
  CHECK(sigprocmask(SIG_BLOCK, nullptr, &mask) == 0);
  return sigismember(&mask, signal) == 1;
}

// Spins until `jumps` handlers have jumped out of the loop.
int Storm(int signal, int timer, int flags, bool save_mask, int jumps) {
  struct sigaction action {};
  action.sa_handler = Leave;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaddset(&action.sa_mask, SIGUSR2);
  CHECK(sigaction(signal, &action, nullptr) == 0);
  const itimerval period{{0, 1000}, {0, 1000}};
  CHECK(setitimer(static_cast<__itimer_which>(timer), &period, nullptr) == 0);
  static volatile int done;
  done = 0;
  const int code = sigsetjmp(g_back, save_mask ? 1 : 0);
  if (code != 0) {
    CHECK(code == 7);
    done = done + 1;
    if (save_mask) {
      CHECK(!IsBlocked(signal) && !IsBlocked(SIGUSR2));
    } else {
      CHECK(IsBlocked(signal) == ((flags & SA_NODEFER) == 0) && IsBlocked(SIGUSR2));
      sigset_t all;
      sigemptyset(&all);
      sigaddset(&all, signal);
      sigaddset(&all, SIGUSR2);
      CHECK(sigprocmask(SIG_UNBLOCK, &all, nullptr) == 0);
    }
  }
  if (done < jumps) {
    g_armed = 1;
    for (uint64_t i = 0;; ++i) check::Keep(check::Burn(i, 100));
  }
  const itimerval off{};
  CHECK(setitimer(static_cast<__itimer_which>(timer), &off, nullptr) == 0);
  return done;
}

}  // namespace

int main() {
  std::printf("real, mask saved: %d\n", Storm(SIGALRM, ITIMER_REAL, 0, true, 100));
  std::printf("real, mask kept: %d\n", Storm(SIGALRM, ITIMER_REAL, 0, false, 100));
  std::printf("prof, no defer: %d\n", Storm(SIGPROF, ITIMER_PROF, SA_NODEFER, false, 60));
  static char stack[65536];
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  CHECK(sigaltstack(&alternate, nullptr) == 0);
  std::printf("virtual, alternate stack: %d\n",
              Storm(SIGVTALRM, ITIMER_VIRTUAL, SA_ONSTACK, true, 60));
  return 0;
}
