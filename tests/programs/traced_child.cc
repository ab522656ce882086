// A child that lets its parent debug it: the parent sees the child's own stops and no others,
// however long the child computes in between.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

namespace {

int Child(uint64_t seed) {
  CHECK(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0);
  uint64_t sum = check::Burn(seed, 2000000);
  CHECK(raise(SIGUSR1) == 0);
  sum += check::Burn(seed + 1, 2000000);
  CHECK(raise(SIGUSR2) == 0);
  return static_cast<int>(sum % 100);
}

}  // namespace

int main() {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(Child(seed));
    int status = 0;
    for (;;) {
      CHECK(waitpid(child, &status, 0) == child);
      if (!WIFSTOPPED(status)) break;
      std::printf("stopped by %d\n", WSTOPSIG(status));
      CHECK(ptrace(PTRACE_CONT, child, nullptr, nullptr) == 0);
    }
    CHECK(WIFEXITED(status));
    std::printf("ended with %d\n", WEXITSTATUS(status));
  }
  return 0;
}
