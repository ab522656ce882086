// The System V and old BSD signal calls, and the system calls themselves, on the signals that the
// trace unit needs: the program sees what it set, whatever stands in the kernel.
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGUSR1};

volatile sig_atomic_t g_count = 0;
sigjmp_buf g_back;

void Count(int) { g_count = g_count + 1; }
void JumpBack(int) { siglongjmp(g_back, 1); }

const char* Name(sighandler_t handler) {
  if (handler == SIG_DFL) return "default";
  if (handler == SIG_IGN) return "ignore";
  if (handler == SIG_HOLD) return "hold";
  if (handler == SIG_ERR) return "error";
  return handler == Count ? "count" : handler == JumpBack ? "jump" : "other";
}

bool IsBlocked(int signal) {
  sigset_t mask;
  CHECK(pthread_sigmask(SIG_SETMASK, nullptr, &mask) == 0);
  return sigismember(&mask, signal) == 1;
}

void Work() { check::Keep(check::Burn(7, 3000000)); }

volatile sig_atomic_t g_usr2_blocked = 0;
void LookAtMask(int) { g_usr2_blocked = IsBlocked(SIGUSR2) ? 1 : 2; }

// The handler runs with the mask that sigsuspend() set, not with the one before.
void Suspended(int signal) {
  sigset_t two;
  sigset_t old;
  sigset_t open_mask;
  sigemptyset(&two);
  sigaddset(&two, SIGUSR2);
  sigaddset(&two, signal);
  sigemptyset(&open_mask);
  CHECK(::signal(signal, LookAtMask) == SIG_DFL);
  CHECK(sigprocmask(SIG_BLOCK, &two, &old) == 0);
  raise(signal);
  CHECK(sigsuspend(&open_mask) == -1 && errno == EINTR);
  std::printf("%d: %d", signal, static_cast<int>(g_usr2_blocked));
  CHECK(sigprocmask(SIG_UNBLOCK, &open_mask, nullptr) == 0 && IsBlocked(SIGUSR2));
  sigdelset(&two, SIGUSR2);
  CHECK(sigprocmask(SIG_UNBLOCK, &two, nullptr) == 0);
  raise(signal);
  std::printf(" %d\n", static_cast<int>(g_usr2_blocked));
  CHECK(sigprocmask(SIG_SETMASK, &old, nullptr) == 0);
  CHECK(::signal(signal, SIG_DFL) == LookAtMask);
}

void SystemV(int signal) {
  std::printf("%d: %s", signal, Name(sigset(signal, Count)));
  Work();
  raise(signal);
  std::printf(" %s", Name(sigset(signal, SIG_HOLD)));
  raise(signal);  // waits
  Work();
  std::printf(" %d %d", static_cast<int>(g_count), IsBlocked(signal) ? 1 : 0);
  std::printf(" %s", Name(sigset(signal, Count)));
  std::printf(" %d", static_cast<int>(g_count));
  CHECK(sighold(signal) == 0);
  raise(signal);
  Work();
  std::printf(" %d", static_cast<int>(g_count));
  CHECK(sigrelse(signal) == 0);
  std::printf(" %d", static_cast<int>(g_count));
  CHECK(sighold(signal) == 0);
  raise(signal);
  CHECK(sigpause(signal) == -1 && errno == EINTR);
  std::printf(" %d %d", static_cast<int>(g_count), IsBlocked(signal) ? 1 : 0);
  raise(signal);
  sigset_t open_mask;
  sigemptyset(&open_mask);
  CHECK(sigsuspend(&open_mask) == -1 && errno == EINTR);
  std::printf(" %d %d", static_cast<int>(g_count), IsBlocked(signal) ? 1 : 0);
  CHECK(sigrelse(signal) == 0);
  CHECK(sigignore(signal) == 0);
  raise(signal);
  Work();
  std::printf(" %s\n", Name(sigset(signal, SIG_DFL)));
  Work();
}

void Bsd(int signal) {
  const int bit = 1 << (signal - 1);
  CHECK(::signal(signal, Count) == SIG_DFL);
  const int before = sigblock(bit);
  CHECK((before & bit) == 0);
  raise(signal);
  Work();
  CHECK((sigblock(0) & bit) != 0);
  std::printf("%d: %d", signal, static_cast<int>(g_count));
  CHECK((sigsetmask(before) & bit) != 0);
  std::printf(" %d", static_cast<int>(g_count));
  CHECK(siginterrupt(signal, 1) == 0);
  struct sigaction action {};
  CHECK(sigaction(signal, nullptr, &action) == 0);
  std::printf(" %d", (action.sa_flags & SA_RESTART) != 0);
  CHECK(::signal(signal, Count) == Count);
  CHECK(sigaction(signal, nullptr, &action) == 0);
  std::printf(" %d", (action.sa_flags & SA_RESTART) != 0);
  CHECK(siginterrupt(signal, 0) == 0);
  CHECK(sigaction(signal, nullptr, &action) == 0);
  std::printf(" %d\n", (action.sa_flags & SA_RESTART) != 0);
  Work();
  CHECK(::signal(signal, SIG_DFL) == Count);
}

extern "C" void Restore();
asm(R"(
        .globl Restore
Restore:
        mov $15, %eax
        syscall
)");

struct KernelAction {
  sighandler_t handler;
  uint64_t flags;
  void* restorer;
  uint64_t mask;
};

// In a child that libc does not know of, too.
void InRawChild(int signal) {
  std::fflush(stdout);
  const pid_t child = static_cast<pid_t>(syscall(SYS_fork));
  if (child == 0) {
    struct sigaction action {};
    action.sa_handler = Count;
    g_count = 0;
    if (sigaction(signal, &action, nullptr) != 0) _exit(1);
    raise(signal);
    if (g_count != 1 || sighold(signal) != 0) _exit(2);
    raise(signal);
    if (g_count != 1 || !IsBlocked(signal) || sigrelse(signal) != 0 || g_count != 2) _exit(3);
    if (::signal(signal, SIG_DFL) != Count || ::signal(signal, SIG_IGN) != SIG_DFL) _exit(4);
    raise(signal);
    _exit(42);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  std::printf("%d: in a child %d\n", signal, WEXITSTATUS(status));
}

void SystemCalls(int signal) {
  KernelAction old{};
  constexpr uint64_t kRestorer = 0x04000000;
  KernelAction action{JumpBack, SA_NODEFER | kRestorer, reinterpret_cast<void*>(&Restore), 0};
  CHECK(syscall(SYS_rt_sigaction, signal, nullptr, &old, 8) == 0);
  std::printf("%d: %s", signal, Name(old.handler));
  CHECK(syscall(SYS_rt_sigaction, signal, &action, &old, 8) == 0);
  Work();
  if (sigsetjmp(g_back, 1) == 0) raise(signal);
  CHECK(syscall(SYS_rt_sigaction, signal, nullptr, &old, 8) == 0);
  std::printf(" %s %llx %d", Name(old.handler), check::Llu(old.flags & (SA_NODEFER | kRestorer)),
              old.restorer == action.restorer ? 1 : 0);
  // What sigaction() set, put back past it.
  action = {Count, 0, nullptr, 0};
  struct sigaction by_libc {};
  by_libc.sa_handler = Count;
  CHECK(sigaction(signal, &by_libc, nullptr) == 0);
  CHECK(syscall(SYS_rt_sigaction, signal, nullptr, &action, 8) == 0);
  CHECK(syscall(SYS_rt_sigaction, signal, &action, nullptr, 8) == 0);
  g_count = 0;
  raise(signal);
  std::printf(" %d", static_cast<int>(g_count));
  action.handler = SIG_DFL;
  CHECK(syscall(SYS_rt_sigaction, signal, &action, nullptr, 8) == 0);
  Work();
  CHECK(syscall(SYS_rt_sigaction, signal, nullptr, &old, 8) == 0);
  std::printf(" %s\n", Name(old.handler));
  errno = 0;
  CHECK(syscall(SYS_rt_sigaction, signal, &action, nullptr, 7) == -1 && errno == EINVAL);
  CHECK(syscall(SYS_rt_sigaction, signal, 1L, nullptr, 8) == -1 && errno == EFAULT);
}

}  // namespace

int main() {
  for (const int signal : kSignals) {
    Suspended(signal);
    g_count = 0;
    SystemV(signal);
    g_count = 0;
    Bsd(signal);
    SystemCalls(signal);
    InRawChild(signal);
  }
  CHECK(sigset(999, Count) == SIG_ERR && errno == EINVAL);
  CHECK(sigignore(SIGKILL) == -1 && errno == EINVAL);
  CHECK(sighold(999) == -1 && errno == EINVAL);
  return 0;
}
