// Ways to die, after some work: the wait status must say the same signal and the same core bit as
// natively.
//
// Usage: crash        forks a child for each way and prints its status
//        crash WAY    dies that way itself
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <stdexcept>
#include <thread>

#include "check.h"

namespace {

volatile int g_zero = 0;

__attribute__((noinline)) int Overflow(volatile char* above, int depth) {
  volatile char frame[4096];
  frame[0] = above[0];
  return depth < 0 ? frame[0] : Overflow(frame, depth + 1) + frame[0];
}

void Segv() { *reinterpret_cast<volatile int*>(static_cast<uintptr_t>(g_zero) + 8) = 1; }

void Jump() {
  auto target = reinterpret_cast<void (*)()>(static_cast<uintptr_t>(g_zero) + 0x10);
  target();
}

void Execute() {
  static char data[64] = "\xc3";
  reinterpret_cast<void (*)()>(data)();
}

__attribute__((noinline)) void Throw() { throw std::runtime_error("nobody catches this"); }

void Divide() { asm volatile("xor %%ecx, %%ecx\n div %%ecx" : : : "eax", "ecx", "edx", "cc"); }

void FromHandler() {
  signal(SIGUSR1, [](int) { Segv(); });
  raise(SIGUSR1);
}

void ResetAndReturn() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGSEGV, &action, nullptr);
  Segv();
}

void Ignored() {
  signal(SIGSEGV, SIG_IGN);  // a fault of one's own kills nevertheless
  Segv();
}

void Blocked() {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  Segv();
}

struct Way {
  const char* name;
  void (*go)();
};

const Way kWays[] = {
    {"segv", Segv},
    {"jump", Jump},
    {"execute", Execute},
    {"fpe", Divide},
    {"ill", [] { asm volatile("ud2"); }},
    {"trap", [] { asm volatile("int3"); }},
    {"privileged", [] { asm volatile("hlt"); }},
    {"noncanonical", [] { *reinterpret_cast<volatile int*>(0x8000000000000000u) = 1; }},
    {"overflow",
     [] {
       char byte = 1;
       g_zero = Overflow(&byte, 0);
     }},
    {"abort", [] { std::abort(); }},
    {"throw", []() noexcept { Throw(); }},
    {"handler", FromHandler},
    {"reset", ResetAndReturn},
    {"ignored", Ignored},
    {"blocked", Blocked},
    {"thread", [] { std::thread(Segv).join(); }},
    {"term", [] { raise(SIGTERM); }},
    {"kill", [] { raise(SIGKILL); }},
    {"xcpu",
     [] {
       const rlimit limit{1, 2};
       setrlimit(RLIMIT_CPU, &limit);
       for (uint64_t i = 0;; ++i) check::Keep(check::Burn(i, 1000));
     }},
    {"exit", [] { _exit(123); }},
};

[[noreturn]] void Die(const Way& way) {
  rlimit limit{};
  getrlimit(RLIMIT_CORE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_CORE, &limit);
  std::freopen("/dev/null", "w", stderr);
  check::Keep(check::Burn(1, 2000000));
  way.go();
  std::printf("%s: still alive\n", way.name);
  std::exit(2);
}

void Report(const Way& way) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) Die(way);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) {
    std::printf("%s: signal %d%s\n", way.name, WTERMSIG(status),
                WCOREDUMP(status) ? ", core dumped" : "");
  } else {
    std::printf("%s: exit %d\n", way.name, WEXITSTATUS(status));
  }
  std::fflush(stdout);
  for (const char* name : {"core", "core.1"}) unlink(name);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Way& way : kWays) {
    if (argc == 1) Report(way);
    if (argc == 2 && std::strcmp(argv[1], way.name) == 0) Die(way);
  }
  return argc == 1 ? 0 : 2;
}
