// Does with a perf.data file whatever can be done with it, for the robustness tests and the fuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace auxtrail::perfdata::testing {

struct ExerciseOutcome {
  bool opened = false;
  uint64_t records = 0;
  uint64_t parsed = 0;
  std::string broken;  // a property that did not hold; empty if all is well
};

// Opens the bytes, walks them in all three ways, parses every record with every parser that takes
// its type, and checks that the bytes of records and the counted losses add up to the data section.
ExerciseOutcome exercise(std::span<const std::byte> file);

}  // namespace auxtrail::perfdata::testing
