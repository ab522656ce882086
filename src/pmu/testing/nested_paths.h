// Shared by the tests that put overflows and interrupts into every gap of a path.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include "event/inline_copy.h"

// In SetUp() or a test.
#ifdef AUXTRAIL_VISIBLE_COPY
#define AUXTRAIL_SKIP_WITHOUT_STEPPING() \
  GTEST_SKIP() << "sanitisers take over signals and make the path hundreds of times longer"
#else
#define AUXTRAIL_SKIP_WITHOUT_STEPPING()                  \
  if (!::auxtrail::pmu::testing::can_plant_breakpoints()) \
  GTEST_SKIP() << "this system does not let a program write to its own code"
#endif

namespace auxtrail::pmu::testing {

inline bool can_plant_breakpoints() {
  const auto page = reinterpret_cast<uint64_t>(&can_plant_breakpoints) & ~uint64_t{4095};
  return mprotect(reinterpret_cast<void*>(page), 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0;
}

enum class Path { kOverflow, kStart, kStop, kStopWithoutUpdate, kPause, kResume };

inline const char* name_of(Path path) {
  constexpr const char* kNames[] = {"overflow", "start", "stop", "stop(0)", "pause", "resume"};
  return kNames[static_cast<int>(path)];
}

struct Count {
  uint64_t points = 0;
  uint64_t inside_snapshots = 0;  // of them, those whose nested sample had to go without AUX bytes
  Count& operator+=(const Count& other) {
    points += other.points;
    inside_snapshots += other.inside_snapshots;
    return *this;
  }
};

// All pairs of gaps instead of some: hours.
inline bool every_gap() { return std::getenv("AUXTRAIL_EVERY_GAP") != nullptr; }

}  // namespace auxtrail::pmu::testing
