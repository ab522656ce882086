// Time inside the traced program. CLOCK_MONOTONIC is the clock of samples and side-band records;
// TSC ticks only measure short stretches of our own work.
#pragma once

#include <time.h>

#include <cstdint>

#include "unit/sys.h"

namespace auxtrail::unit {

inline uint64_t now_ns() {
  timespec now{};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);  // vdso; async-signal-safe, no errno on success
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

inline uint64_t thread_cpu_ns() {
  timespec now{};
  (void)sys::call(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, sys::arg(&now));
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

inline uint64_t ticks() { return __builtin_ia32_rdtsc(); }

}  // namespace auxtrail::unit
