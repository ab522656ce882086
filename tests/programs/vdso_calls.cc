// The vdso: clock_gettime, gettimeofday, time and getcpu in loops, called through libc and through
// pointers taken from it. Its code lies in a mapping without a file.
#include <dlfcn.h>
#include <sched.h>
#include <sys/time.h>

#include "check.h"

namespace {

int CountOrdered(clockid_t clock, int rounds) {
  uint64_t last = 0;
  int ordered = 0;
  for (int i = 0; i < rounds; ++i) {
    const uint64_t now = check::NowNs(clock);
    ordered += now >= last ? 1 : 0;
    last = now;
  }
  return ordered;
}

}  // namespace

int main() {
  for (clockid_t clock :
       {CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME, CLOCK_MONOTONIC_COARSE}) {
    std::printf("clock %d: %d\n", clock, CountOrdered(clock, 3000000));
  }
  int good = 0;
  for (int i = 0; i < 3000000; ++i) {
    timeval now{};
    good += gettimeofday(&now, nullptr) == 0 && now.tv_usec < 1000000 ? 1 : 0;
    good += time(nullptr) - now.tv_sec <= 1 ? 1 : 0;
    good += sched_getcpu() >= 0 ? 1 : 0;
  }
  std::printf("others: %d\n", good);
  return 0;
}
