// dlopen and dlclose in a loop of plugins that differ in a few bytes of code and are mapped at the
// same address. Code that was translated from one must never run for another: that would be a wrong
// result. The results are compared with the first ones of each plugin; a share of the rounds has a
// second thread that computes meanwhile.
//
// Usage: dlopen_loop PLUGIN.so...
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

namespace {

using Run = uint64_t (*)(uint64_t, uint64_t);
constexpr uint64_t kSeedlessStart = 12345;

// What PluginRun computes, written again with the seed as data.
uint64_t Expected(uint64_t seed, uint64_t rounds) {
  uint64_t value = kSeedlessStart;
  for (uint64_t i = 0; i < rounds; ++i) {
    if ((value >> (seed & 7) & 1) != 0) {
      const uint64_t mixed = value ^ i;
      value = (mixed & 1) != 0 ? mixed * 3 + seed : (mixed >> 1) + seed;
    } else {
      value += value * seed;
    }
  }
  return value;
}

struct Loaded {
  void* handle;
  Run run;
};

Loaded Open(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) std::printf("%s\n", dlerror());
  CHECK(handle != nullptr);
  auto run = reinterpret_cast<Run>(dlsym(handle, "PluginRun"));
  CHECK(run != nullptr);
  return {handle, run};
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc >= 3);
  constexpr uint64_t kRounds = 30000;
  constexpr int kLoops = 3000;
  const auto plugins = static_cast<size_t>(argc - 1);
  std::vector<uint64_t> expected(plugins);
  std::vector<uintptr_t> address(plugins);
  for (size_t i = 0; i < plugins; ++i) expected[i] = Expected(i + 1, kRounds);
  std::atomic<bool> stop{false};
  std::thread other;
  int same_address = 0;
  uintptr_t last = 0;
  uint64_t sum = 0;
  for (int loop = 0; loop < kLoops; ++loop) {
    if (loop == kLoops / 2) {
      other = std::thread([&stop] {
        for (uint64_t i = 0; !stop.load(); ++i) check::Keep(check::Burn(i, 1000));
      });
    }
    const size_t which = static_cast<size_t>(loop) % plugins;
    const Loaded loaded = Open(argv[1 + which]);
    const uint64_t result = loaded.run(kSeedlessStart, kRounds);
    CHECK(result == expected[which]);
    const auto at = reinterpret_cast<uintptr_t>(loaded.run);
    same_address += at == last ? 1 : 0;
    last = at;
    sum += result;
    CHECK(dlclose(loaded.handle) == 0);
  }
  stop = true;
  other.join();
  std::printf("sum %016llx, at the same address: %s\n", check::Llu(sum),
              same_address > kLoops / 2 ? "mostly" : "seldom");
  return 0;
}
