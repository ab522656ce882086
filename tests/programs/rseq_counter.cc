// Restartable sequences: a per-CPU counter in the area that glibc registers for each thread. A
// critical section is only safe when it runs at its own address and the kernel sees it there; run
// from anywhere else it loses counts. Two threads per CPU fight for the counters, and the total
// must be exact.
#include <linux/rseq.h>
#include <sys/rseq.h>

#include <thread>
#include <vector>

#include "check.h"

namespace {

struct alignas(128) Counter {
  uint64_t value;
};
Counter g_counters[1024];

rseq* Area() {
  return reinterpret_cast<rseq*>(static_cast<char*>(__builtin_thread_pointer()) + __rseq_offset);
}

// Adds 1 to the counter of the CPU it runs on; false when the sequence was aborted.
inline bool TryIncrement(rseq* area) {
  bool done = false;
  asm volatile(R"(
      .pushsection __rseq_cs, "aw"
      .balign 32
  3:  .long 0, 0
      .quad 1f, (2f - 1f), 4f
      .popsection
      lea 3b(%%rip), %%rax
      mov %%rax, 8(%[area])           # rseq_cs
  1:  mov 4(%[area]), %%ecx           # cpu_id
      shl $7, %%rcx
      add %[counters], %%rcx
      mov (%%rcx), %%rdx
      test $1, %%dl
      jz 6f
      nop
  6:  add $1, %%rdx
      mov %%rdx, (%%rcx)              # commit
  2:  movb $1, %[done]
      jmp 5f
      .long 0x53053053                # the signature that glibc registers
  4:  movb $0, %[done]
  5:)"
               : [done] "=m"(done)
               : [area] "r"(area), [counters] "r"(g_counters)
               : "rax", "rcx", "rdx", "memory", "cc");
  return done;
}

void Work(uint64_t increments) {
  rseq* area = Area();
  for (uint64_t i = 0; i < increments; ++i) {
    while (!TryIncrement(area)) {
    }
  }
  area->rseq_cs = 0;
}

}  // namespace

int main() {
  if (__rseq_size == 0) {
    std::printf("no rseq here\n");
    return 0;
  }
  constexpr uint64_t kIncrements = 600000000;
  const unsigned count = 2 * static_cast<unsigned>(sysconf(_SC_NPROCESSORS_ONLN));
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) threads.emplace_back(Work, kIncrements / count);
  for (auto& thread : threads) thread.join();
  uint64_t sum = 0;
  for (const Counter& counter : g_counters) sum += counter.value;
  CHECK(sum == kIncrements / count * count);
  std::printf("exact: %llu\n", check::Llu(sum));
  return 0;
}
