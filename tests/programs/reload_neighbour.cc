// A library that is used through a function pointer, while another one is closed beside it: what
// was translated of the first goes with the second, and must come back.
//
// Usage: reload_neighbour LIBRARY.so OTHER.so
#include <dlfcn.h>

#include <cstdint>

#include "check.h"

namespace {

using Step = uint64_t (*)(uint64_t);

__attribute__((noinline)) uint64_t Use(Step step, uint64_t count) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < count; ++i) sum = sum * 3 + step(i);
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3);
  void* handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  CHECK(handle != nullptr);
  const auto step = reinterpret_cast<Step>(dlsym(handle, "TlsStep"));
  CHECK(step != nullptr);
  uint64_t sum = Use(step, 20000000);
  for (int round = 0; round < 3; ++round) {
    void* other = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    CHECK(other != nullptr);
    CHECK(dlclose(other) == 0);
    sum += Use(step, 20000000);
  }
  std::printf("%llu\n", static_cast<unsigned long long>(sum));
}
