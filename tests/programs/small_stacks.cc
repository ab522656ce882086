// Threads on stacks of 16 KiB (or the least that this system allows): glibc's own with a guard
// page, and some given by pthread_attr_setstack between two areas full of a pattern that nobody may
// touch. The threads use about a third of their stack and compute there.
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "check.h"

namespace {

size_t StackBytes() {
  const long least = sysconf(_SC_THREAD_STACK_MIN);
  return std::max<size_t>(16384, least > 0 ? static_cast<size_t>(least) : 0);
}

__attribute__((noinline)) uint64_t Descend(int depth, uint64_t seed) {
  volatile uint64_t frame[16];
  for (int i = 0; i < 16; ++i) frame[i] = seed + static_cast<uint64_t>(i);
  uint64_t result = depth == 0 ? check::Burn(seed, 400000) : Descend(depth - 1, seed + 1);
  for (int i = 0; i < 16; ++i) result += frame[i];
  return result;
}

void* Work(void* argument) {
  const uint64_t result = Descend(20, reinterpret_cast<uintptr_t>(argument));
  return reinterpret_cast<void*>(result);
}

uint64_t RunBatch(std::vector<void*> stacks, size_t bytes) {
  std::vector<pthread_t> threads(8);
  for (size_t i = 0; i < threads.size(); ++i) {
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    if (stacks.empty()) {
      CHECK(pthread_attr_setstacksize(&attributes, bytes) == 0);
    } else {
      CHECK(pthread_attr_setstack(&attributes, stacks[i], bytes) == 0);
    }
    CHECK(pthread_create(&threads[i], &attributes, Work, reinterpret_cast<void*>(i + 1)) == 0);
    pthread_attr_destroy(&attributes);
  }
  uint64_t sum = 0;
  for (pthread_t thread : threads) {
    void* result = nullptr;
    CHECK(pthread_join(thread, &result) == 0);
    sum += reinterpret_cast<uintptr_t>(result);
  }
  return sum;
}

}  // namespace

int main() {
  const size_t bytes = StackBytes();
  uint64_t sum = 0;
  for (int i = 0; i < 20; ++i) sum += RunBatch({}, bytes);
  std::printf("own stacks %016llx\n", check::Llu(sum));
  // Stacks of the program's own, each between two mappings full of a pattern.
  constexpr size_t kGuard = 16384;
  std::vector<void*> stacks;
  std::vector<unsigned char*> blocks;
  for (int i = 0; i < 8; ++i) {
    void* block = mmap(nullptr, bytes + 2 * kGuard, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(block != MAP_FAILED);
    std::memset(block, 0x5a, bytes + 2 * kGuard);
    blocks.push_back(static_cast<unsigned char*>(block));
    stacks.push_back(blocks.back() + kGuard);
  }
  sum = 0;
  for (int i = 0; i < 20; ++i) sum += RunBatch(stacks, bytes);
  for (unsigned char* block : blocks) {
    for (size_t k = 0; k < kGuard; ++k) {
      CHECK(block[k] == 0x5a && block[kGuard + bytes + k] == 0x5a);
    }
  }
  std::printf("given stacks %016llx\n", check::Llu(sum));
  return 0;
}
