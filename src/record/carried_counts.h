// CarriedCounts: the values that samples tell (PERF_SAMPLE_READ) when a program executes another.
//
// A counter of the kernel's counts on through exec; the trace unit's begin at 0 with each program
// that is executed. perf takes the difference of a sample's value and the one before, so a value
// must not fall: the recorder adds what the programs before have counted. Values are read for the
// command's first thread alone, so there is one row of programs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "channel/layout.h"

namespace auxtrail::record {

// What the unit has counted of one thread.
struct UnitCounts {
  uint64_t insns = 0;
  uint64_t branches = 0;
};

class CarriedCounts {
 public:
  explicit CarriedCounts(const channel::SessionConfig& config);

  // Adds to the values of a sample, if it has any. The record is one that SampleCheck accepted.
  void adjust(std::span<std::byte> record);
  // The program has executed another. What it counted of the unit's events is told; of the kernel's
  // it is what the last sample said.
  void executed(const UnitCounts& counts);

 private:
  struct Event {
    uint64_t id = 0;
    channel::Sampler::Kind kind = channel::Sampler::kKernelEvent;
    bool is_clock = false;
    uint64_t read_format = 0;  // 0: its samples tell no values
    size_t offset = 0;         // of READ in its samples
    uint64_t before = 0;       // counted by the programs before
    uint64_t last = 0;         // told by the present one
  };
  [[nodiscard]] Event* event_of(uint64_t id);
  void adjust_value(std::span<std::byte> record, size_t offset);

  std::vector<Event> events_;
};

}  // namespace auxtrail::record
