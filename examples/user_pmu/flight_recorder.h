// A PMU of one's own: an application's flight recorder, sampled like a CPU trace.
//
// A server writes log lines all the time and nobody wants to keep them, except those that lead up
// to something odd. So the lines go round in an AUX area, and where something odd happens an event
// overflows: its sample carries the newest bytes of the area. That is AUX area sampling, with log
// lines in place of branches. What the engine gives: the sample is one record in a ring that
// another thread (or process) drains; it may be taken in a signal handler, in the middle of a line
// or of another sample; and nothing is locked or allocated.
//
// Such a PMU is a table of functions. This one needs two of them: setup_aux accepts the area, and
// snapshot_aux copies its newest bytes. (A PMU without snapshot_aux refuses samplers.) One that has
// to be switched on and off has add, del, start and stop too: src/pmu/intel_bts.cc is a small one.
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "event/ring_reader.h"
#include "event/thread_context.h"

namespace user_pmu {

extern const auxtrail::event::Pmu kFlightRecorder;

// Of one thread, with the memory for it. The ring's reader may be on another thread.
class FlightRecorder {
 public:
  // Samples hold the newest `sample_bytes` bytes of lines.
  FlightRecorder(uint32_t tid, uint32_t sample_bytes);

  // Appends a line.
  void note(std::string_view line);
  // Takes a sample because of `reason`, a number that it carries as its address. Async-signal-safe.
  void sample(uint64_t reason);

  [[nodiscard]] auxtrail::event::RingReader reader();
  [[nodiscard]] const perf_event_attr& sampler_attr() const { return sampler_; }
  // Samples that found no room in the ring.
  [[nodiscard]] uint64_t lost() const { return context_.lost(); }

 private:
  static constexpr uint64_t kDataBytes = 1 << 16;
  static constexpr uint64_t kAuxBytes = 1 << 14;
  uint32_t tid_;
  perf_event_attr leader_{};
  perf_event_attr sampler_{};
  perf_event_mmap_page control_{};
  std::vector<std::byte> data_;
  std::vector<std::byte> lines_;
  auxtrail::event::ThreadContext context_;
};

}  // namespace user_pmu
