// A program that locks itself in with seccomp, as sandboxes of browsers and compilers do: after
// that only a few system calls are allowed and any other one kills. It computes in there for a
// while. A tracer must not make system calls of its own in that state beyond what the program
// itself may make.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstddef>

#include "check.h"

namespace {

void Filter() {
#define ALLOW(number)                                      \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##number, 0, 1), \
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      ALLOW(read),
      ALLOW(write),
      ALLOW(exit_group),
      ALLOW(rt_sigreturn),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
#undef ALLOW
  const sock_fprog program{sizeof code / sizeof code[0], code};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

void Report(const char* name, int status) {
  if (WIFSIGNALED(status)) {
    std::printf("%s: signal %d\n", name, WTERMSIG(status));
  } else {
    std::printf("%s: exit %d\n", name, WEXITSTATUS(status));
  }
}

int Run(void (*lock)(), bool break_out) {
  std::fflush(stdout);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    lock();
    const uint64_t result = check::Burn(11, 40000000);
    if (break_out) syscall(SYS_getuid);
    // Strict mode allows exit, but not exit_group.
    syscall(break_out || lock == Filter ? SYS_exit_group : SYS_exit,
            static_cast<int>(40 + result % 7));
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

int main() {
  Report("filter", Run(Filter, false));
  Report("filter, broken", Run(Filter, true) & ~0x80);
  Report("strict", Run([] { CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0); }, false));
  return 0;
}
