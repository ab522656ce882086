// The one clock of a recording: CLOCK_MONOTONIC in nanoseconds, as in all records of the file.
#pragma once

#include <cstdint>
#include <ctime>

namespace auxtrail::record {

inline uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace auxtrail::record
