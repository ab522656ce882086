// A program that owns SIGTRAP: its handler counts int3 instructions, raise(SIGTRAP), tgkill and
// sigqueue, sees the right si_code and address, and nothing else ever reaches it. Before it
// installs one, the disposition reads as the default; blocked and pending SIGTRAPs behave; SIG_IGN
// is honoured.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "check.h"

namespace {

volatile uint64_t g_breakpoints = 0;
volatile uint64_t g_raised = 0;
volatile uint64_t g_queued = 0;

extern "C" char AfterBreakpoint[];
extern "C" void Breakpoint();
asm(R"(
    .text
    .globl Breakpoint
    .type Breakpoint, @function
Breakpoint:
    int3
    .globl AfterBreakpoint
AfterBreakpoint:
    ret
    .size Breakpoint, .-Breakpoint
)");

void Handler(int signal, siginfo_t* info, void* context) {
  CHECK(signal == SIGTRAP);
  const auto* user = static_cast<ucontext_t*>(context);
  if (info->si_code == SI_KERNEL) {
    CHECK(user->uc_mcontext.gregs[REG_RIP] == reinterpret_cast<greg_t>(AfterBreakpoint));
    g_breakpoints = g_breakpoints + 1;
  } else if (info->si_code == SI_TKILL) {
    CHECK(info->si_pid == getpid());
    g_raised = g_raised + 1;
  } else if (info->si_code == SI_QUEUE) {
    CHECK(info->si_value.sival_int == 1234);
    g_queued = g_queued + 1;
  } else {
    CHECK(!"a SIGTRAP that nobody sent");
  }
}

void Pending() {
  sigset_t trap;
  sigemptyset(&trap);
  sigaddset(&trap, SIGTRAP);
  CHECK(sigprocmask(SIG_BLOCK, &trap, nullptr) == 0);
  const uint64_t before = g_raised;
  CHECK(raise(SIGTRAP) == 0);
  sigset_t pending;
  CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGTRAP) == 1);
  CHECK(g_raised == before);
  CHECK(check::Burn(1, 2000000) != 0);
  CHECK(sigprocmask(SIG_UNBLOCK, &trap, nullptr) == 0);
  CHECK(g_raised == before + 1);
}

int StatusOfChild(bool ignore) {
  std::fflush(stdout);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    signal(SIGTRAP, ignore ? SIG_IGN : SIG_DFL);
    const uint64_t burnt = check::Burn(3, 3000000);
    raise(SIGTRAP);
    _exit(burnt != 0 ? 5 : 6);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return status & ~0x80;  // whether a core was written depends on the limit
}

}  // namespace

int main() {
  struct sigaction seen {};
  CHECK(sigaction(SIGTRAP, nullptr, &seen) == 0 && seen.sa_handler == SIG_DFL);
  CHECK(check::Burn(9, 20000000) != 0);
  CHECK(sigaction(SIGTRAP, nullptr, &seen) == 0 && seen.sa_handler == SIG_DFL);
  std::printf("default: status %#x\n", StatusOfChild(false));
  std::printf("ignored: status %#x\n", StatusOfChild(true));
  struct sigaction action {};
  action.sa_sigaction = Handler;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  CHECK(sigaction(SIGTRAP, &action, &seen) == 0 && seen.sa_handler == SIG_DFL);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    sum += check::Burn(i, 3000) & 7;
    if (i % 2 == 0) Breakpoint();
    if (i % 16 == 0) CHECK(raise(SIGTRAP) == 0);
    if (i % 64 == 0) {
      sigval value{};
      value.sival_int = 1234;
      CHECK(sigqueue(getpid(), SIGTRAP, value) == 0);
    }
    if (i % 2000 == 0) Pending();
  }
  std::printf("sum %llu, breakpoints %llu, raised %llu, queued %llu\n", check::Llu(sum),
              check::Llu(g_breakpoints), check::Llu(g_raised), check::Llu(g_queued));
  CHECK(sigaction(SIGTRAP, nullptr, &seen) == 0 && seen.sa_sigaction == Handler);
  std::printf("default again: status %#x\n", StatusOfChild(false));
  return 0;
}
