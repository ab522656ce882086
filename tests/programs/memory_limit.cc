// A program that runs with nearly no address space left (RLIMIT_AS): it allocates until it may not,
// handles that, computes in what it has, and cannot start threads. A tracer gets no memory there
// either.
#include <pthread.h>
#include <sys/resource.h>

#include <fstream>
#include <new>
#include <vector>

#include "check.h"

namespace {

uint64_t AddressSpaceBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  file >> pages;
  return pages * 4096;
}

void* Nothing(void*) { return nullptr; }

uint64_t AllocateAll() {
  std::vector<void*> blocks;
  blocks.reserve(10000);
  while (void* block = std::malloc(1 << 16)) blocks.push_back(block);
  CHECK(errno == ENOMEM);
  bool thrown = false;
  try {
    check::Keep(reinterpret_cast<uintptr_t>(new char[64 << 20]));
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  CHECK(thrown);
  pthread_t thread;
  CHECK(pthread_create(&thread, nullptr, Nothing, nullptr) != 0);
  const uint64_t result = check::Burn(3, 3000000);
  for (void* block : blocks) std::free(block);
  return result;
}

}  // namespace

int main() {
  rlimit limit{};
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  limit.rlim_cur = AddressSpaceBytes() + (8u << 20);
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  uint64_t sum = 0;
  for (int i = 0; i < 50; ++i) sum += AllocateAll();
  std::printf("sum %016llx\n", check::Llu(sum));
  return 0;
}
