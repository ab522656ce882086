// A library with thread-local data, loaded by dlopen while threads run, used from old and new
// threads and closed again: the dynamic thread vectors grow, and __tls_get_addr takes its slow way
// now and then.
//
// Usage: tls_library LIBRARY.so
#include <dlfcn.h>

#include <thread>
#include <vector>

#include "check.h"

namespace {

using Step = uint64_t (*)(uint64_t);

uint64_t Use(Step step) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 400000; ++i) sum = sum * 3 + step(i);
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 2);
  uint64_t first = 0;
  for (int round = 0; round < 60; ++round) {
    void* handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) std::printf("%s\n", dlerror());
    CHECK(handle != nullptr);
    auto step = reinterpret_cast<Step>(dlsym(handle, "TlsStep"));
    CHECK(step != nullptr);
    std::vector<uint64_t> results(4);
    std::vector<std::thread> threads;
    for (uint64_t& result : results) threads.emplace_back([&result, step] { result = Use(step); });
    for (auto& thread : threads) thread.join();
    if (round == 0) first = results[0];
    for (uint64_t result : results) CHECK(result == first);
    CHECK(dlclose(handle) == 0);
  }
  std::printf("each time %016llx\n", check::Llu(first));
  return 0;
}
