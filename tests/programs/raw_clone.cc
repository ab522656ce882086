// Processes and threads made by the raw system calls: clone and clone3 as fork,
// clone(CLONE_VM|CLONE_VFORK) on its own stack, and a thread without thread-local storage of its
// own that shares its creator's FS base. None of them goes through a libc function that a wrapper
// could see.
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>

#include "check.h"

namespace {

constexpr size_t kStackBytes = 65536;

int Status(pid_t pid) {
  int status = 0;
  CHECK(waitpid(pid, &status, __WALL) == pid && WIFEXITED(status));
  return WEXITSTATUS(status);
}

int ForkByClone(uint64_t seed) {
  const long pid = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  CHECK(pid >= 0);
  if (pid == 0) syscall(SYS_exit_group, static_cast<int>(check::Burn(seed, 300000) % 100));
  return Status(static_cast<pid_t>(pid));
}

int ForkByClone3(uint64_t seed) {
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  const long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
  CHECK(pid >= 0);
  if (pid == 0) syscall(SYS_exit_group, static_cast<int>(check::Burn(seed, 300000) % 100));
  return Status(static_cast<pid_t>(pid));
}

int SharedMemoryChild(void* argument) {
  auto* value = static_cast<uint64_t*>(argument);
  *value = check::Burn(*value, 300000);
  return static_cast<int>(*value % 100);
}

int CloneVm(uint64_t seed, char* stack) {
  uint64_t value = seed;
  const int pid =
      clone(SharedMemoryChild, stack + kStackBytes, CLONE_VM | CLONE_VFORK | SIGCHLD, &value);
  CHECK(pid > 0);
  CHECK(value == check::Burn(seed, 300000));
  return Status(pid);
}

struct RawThread {
  std::atomic<uint64_t> result{0};
  std::atomic<int> tid{0};
};

// Starts a thread of this process that runs Loop(rounds) in assembly, stores the result and exits.
// It has its creator's FS base, so it must not touch anything thread-local; neither does it.
extern "C" long StartRawThread(void* stack_top, uint64_t flags, RawThread* into, void* tid_word);
asm(R"(
    .text
    .globl StartRawThread
    .type StartRawThread, @function
StartRawThread:
    push %rbx
    mov %rdx, %rbx
    mov %rcx, %r10          # child tid, cleared at its end
    xchg %rdi, %rsi         # flags, stack
    xor %edx, %edx
    xor %r8d, %r8d
    mov $56, %eax
    syscall
    test %rax, %rax
    jz 1f
    pop %rbx
    ret
1:  mov $3000000, %ecx
    mov $1, %eax
2:  lea (%rax,%rax,4), %rax
    test $8, %al
    jz 3f
    xor %rcx, %rax
3:  dec %rcx
    jnz 2b
    mov %rax, (%rbx)
    xor %edi, %edi
    mov $60, %eax
    syscall
    ud2
    .size StartRawThread, .-StartRawThread
)");

uint64_t RawThreadResult(char* stack) {
  static RawThread thread;
  thread.tid = 1;
  const uint64_t flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                         CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
  CHECK(StartRawThread(stack + kStackBytes, flags, &thread, &thread.tid) > 0);
  uint64_t own = 0;
  while (thread.tid != 0) own += check::Burn(own, 1000) & 1;
  check::Keep(own);
  return thread.result;
}

}  // namespace

int main() {
  void* at = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  char* stack = static_cast<char*>(at);
  int sum = 0;
  uint64_t threads = 0;
  for (uint64_t i = 0; i < 60; ++i) {
    sum += ForkByClone(i) + ForkByClone3(i) + CloneVm(i, stack);
    threads = threads * 31 + RawThreadResult(stack);
  }
  std::printf("sum %d, threads %016llx\n", sum, check::Llu(threads));
  return 0;
}
