// Signals that arrive while a thread makes system calls: their handlers see it at its own call, at
// the instruction behind it, or between; the mask stays what it was, and no call is lost or made
// twice.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "check.h"

namespace {

constexpr int kSignals[] = {SIGUSR1, SIGSEGV, SIGFPE, SIGALRM, SIGCHLD, SIGTRAP};
constexpr uint64_t kEach = 300;

std::atomic<uint64_t> g_seen[65];
std::atomic<uint64_t> g_elsewhere{0};

// write(fd, "x", 1) again and again until told to stop; returns how often it succeeded, less how
// often it failed. All of the thread's instructions while signals arrive.
extern "C" int64_t CallLoop(int fd, const std::atomic<bool>* stop, std::atomic<bool>* started);
extern "C" const char call_loop_end[];
asm(R"(
        .globl CallLoop
CallLoop:
        push %rbx
        push %rbp
        xor %ebx, %ebx
        mov %rsi, %rbp
        movb $1, (%rdx)
1:      mov $1, %eax
        lea 3f(%rip), %rsi
        mov $1, %edx
        syscall
        cmp $1, %rax
        jne 2f
        inc %rbx
        cmpb $0, (%rbp)
        je 1b
        mov %rbx, %rax
        pop %rbp
        pop %rbx
        ret
2:      dec %rbx
        jmp 1b
3:      .byte 'x'
        .globl call_loop_end
call_loop_end:
)");

void OnSignal(int signal, siginfo_t*, void* context) {
  const auto ip =
      static_cast<uint64_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
  const bool inside =
      ip >= reinterpret_cast<uint64_t>(&CallLoop) && ip < reinterpret_cast<uint64_t>(call_loop_end);
  if (!inside) g_elsewhere.fetch_add(1);
  g_seen[signal].fetch_add(1);
}

// The kernel keeps one SIGTRAP for a thread, whoever sent it: where a perf event's is waiting, ours
// may be merged with that. So it is sent again after some time.
void WaitFor(pthread_t target, int signal, uint64_t count) {
  const auto start = std::chrono::steady_clock::now();
  auto next = start + std::chrono::milliseconds(500);
  while (g_seen[signal] < count) {
    sched_yield();
    if (signal != SIGTRAP || std::chrono::steady_clock::now() < next) continue;
    CHECK(pthread_kill(target, signal) == 0);
    next += std::chrono::milliseconds(500);
  }
}

}  // namespace

int main() {
  for (const int signal : kSignals) {
    struct sigaction action {};
    action.sa_sigaction = OnSignal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigfillset(&action.sa_mask);
    CHECK(sigaction(signal, &action, nullptr) == 0);
  }
  int ends[2];
  CHECK(pipe(ends) == 0);
  std::atomic<bool> started{false};
  std::atomic<bool> stop{false};
  int64_t written = 0;
  int blocked = 0;
  std::thread target([&] {
    written = CallLoop(ends[1], &stop, &started);
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_BLOCK, nullptr, &mask) == 0);
    for (int signal = 1; signal < 32; ++signal) blocked += sigismember(&mask, signal);
    close(ends[1]);
  });
  int64_t read_back = 0;
  std::thread reader([&] {
    char buffer[4096];
    for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) read_back += got;
  });
  while (!started) usleep(1000);
  for (uint64_t i = 1; i <= kEach; ++i) {
    for (const int signal : kSignals) {
      CHECK(pthread_kill(target.native_handle(), signal) == 0);
      WaitFor(target.native_handle(), signal, i);
    }
  }
  stop = true;
  target.join();
  reader.join();
  for (const int signal : kSignals) {
    std::printf("%d: %s\n", signal, g_seen[signal] >= kEach ? "all" : "some lost");
  }
  std::printf("elsewhere %llu, blocked %d, written as counted: %d\n", check::Llu(g_elsewhere),
              blocked, written == read_back);
  return 0;
}
