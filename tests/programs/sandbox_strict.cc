// A sandbox whose filter kills for everything that the program itself does not call. Nothing of the
// unit's may be left in its way: not before, not after, not in a child.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <vector>

#include "check.h"

namespace {

void Allow(std::vector<sock_filter>& program, long number) {
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

void Close(bool by_prctl) {
  std::vector<sock_filter> program;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const long number : {SYS_write, SYS_exit_group, SYS_rt_sigreturn, SYS_rt_sigaction,
                            SYS_rt_sigprocmask, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_brk,
                            SYS_prlimit64, SYS_sigaltstack, SYS_fstat, SYS_newfstatat}) {
    Allow(program, number);
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  if (by_prctl) {
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
  } else {
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0);
  }
}

volatile sig_atomic_t g_faults = 0;
void OnFault(int, siginfo_t*, void* context) {
  g_faults = g_faults + 1;
  auto* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_RIP] += 2;  // ud2
}

void InTheSandbox() {
  sigset_t set;
  sigset_t old;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGTRAP);
  CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0);
  CHECK(sigprocmask(SIG_SETMASK, &old, &set) == 0);
  CHECK(sigismember(&set, SIGTRAP) == 1 && sigismember(&set, SIGUSR1) == 1);
  struct sigaction action {};
  struct sigaction before {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO;
  CHECK(sigaction(SIGILL, &action, &before) == 0 && before.sa_handler == SIG_DFL);
  CHECK(sigaction(SIGUSR1, &action, nullptr) == 0);
  CHECK(sigaction(SIGSEGV, nullptr, &before) == 0 && before.sa_handler == SIG_IGN);
  CHECK(syscall(SYS_rt_sigaction, SIGILL, nullptr, nullptr, 8) == 0);
  void* const page =
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED && mprotect(page, 4096, PROT_READ) == 0 && munmap(page, 4096) == 0);
  rlimit limit{};
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  stack_t stack{};
  CHECK(sigaltstack(nullptr, &stack) == 0);
  for (int i = 0; i < 3; ++i) {
    check::Keep(check::Burn(static_cast<uint64_t>(i), 20000000));
    asm volatile("ud2");
  }
  std::printf("%d faults\n", static_cast<int>(g_faults));
  std::fflush(stdout);
}

// How the child is made: by libc's fork(), past it, or not at all.
void Run(int how, bool by_prctl) {
  std::fflush(stdout);
  const pid_t child = how == 0 ? fork() : static_cast<pid_t>(syscall(SYS_fork));
  CHECK(child >= 0);
  if (child == 0) {
    Close(by_prctl);
    InTheSandbox();
    _exit(7);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  std::printf("child: %s %d\n", WIFEXITED(status) ? "exit" : "signal",
              WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

}  // namespace

int main() {
  signal(SIGSEGV, SIG_IGN);
  check::Keep(check::Burn(1, 20000000));
  for (const bool by_prctl : {true, false}) {
    Run(0, by_prctl);
    Run(1, by_prctl);
  }
  std::fflush(stdout);
  Close(true);
  InTheSandbox();
  _exit(9);
}
