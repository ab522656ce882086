// A PMU whose trace unit is driven by the test: the AUX-capable leader that this machine may not
// have.
//
// It does with the AUX area what Intel PT does: a transaction from start to stop(kEfUpdate), closed
// and opened again at an interrupt; paused and resumed in between; snapshots that leave all that
// alone. What it traces is a pattern that shows every position.
#pragma once

#include <cerrno>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "event/aux_output.h"
#include "event/pmu.h"
#include "perf_event/kernel.h"

namespace auxtrail::perf_event::testing {

// The unit of one event.
struct TraceUnit {
  event::AuxOutput output;
  bool tracing = false;
  uint64_t written = 0;  // in this transaction
  uint64_t total = 0;    // of all times
  std::string log;       // b(egin) e(nd) p(ause) r(esume) S(napshot)
  std::function<void()> in_snapshot;
};

// All units of a kernel; the PMUs' context.
class Tracer {
 public:
  TraceUnit& unit(const event::Event& event) { return units_[&event]; }
  PmuContextOf context() {
    return [this](uint32_t, int) { return this; };
  }

  // Traces `bytes` bytes if the unit is on; what there is no room for is lost, and said to be.
  void trace(event::Event& event, uint64_t bytes) {
    TraceUnit& unit = this->unit(event);
    if (!unit.tracing || !unit.output.is_open()) return;
    event::AuxArea& area = *unit.output.area();
    uint64_t room = bytes;
    if (!area.overwrite() && unit.output.size() - unit.written < bytes) {
      room = unit.output.size() - unit.written;
      unit.output.flag(PERF_AUX_FLAG_TRUNCATED);
    }
    std::vector<std::byte> pattern(room);
    for (uint64_t i = 0; i < room; ++i) pattern[i] = byte_at(unit.total + i);
    if (area.overwrite()) {
      area.write(pattern.data(), room);
    } else {
      area.place(unit.output.head() + unit.written, pattern.data(), room);
    }
    unit.written += room;
    unit.total += room;
  }
  static std::byte byte_at(uint64_t position) { return static_cast<std::byte>(position % 251 + 1); }

  // The unit's interrupt: what is there is handed over, and tracing goes on.
  void interrupt(event::Event& event) {
    end(event);
    begin(event);
  }

  bool begin(event::Event& event) {
    TraceUnit& unit = this->unit(event);
    unit.written = 0;
    if (!unit.output.begin(event)) return false;
    unit.log += 'b';
    return true;
  }
  void end(event::Event& event) {
    TraceUnit& unit = this->unit(event);
    if (!unit.output.is_open()) return;
    unit.output.end(unit.written);
    unit.log += 'e';
  }

 private:
  std::map<const event::Event*, TraceUnit> units_;
};

inline Tracer& tracer_of(const event::Event& event) {
  return *static_cast<Tracer*>(event.hw.context);
}
inline TraceUnit& unit_of(const event::Event& event) { return tracer_of(event).unit(event); }

inline void tracer_start(event::Event& event, uint32_t flags) {
  TraceUnit& unit = unit_of(event);
  if ((flags & event::kEfResume) != 0) {
    unit.log += 'r';
    unit.tracing = unit.output.is_open();
    return;
  }
  // A stop without update has left the transaction open: it goes on.
  if (!unit.output.is_open() && !tracer_of(event).begin(event)) {
    event.hw.stopped = true;
    return;
  }
  event.hw.stopped = false;
  unit.tracing = !event.hw.aux_paused;
}
inline void tracer_stop(event::Event& event, uint32_t flags) {
  TraceUnit& unit = unit_of(event);
  unit.tracing = false;
  if ((flags & event::kEfPause) != 0) {
    unit.log += 'p';
    return;
  }
  event.hw.stopped = true;
  if ((flags & event::kEfUpdate) != 0) tracer_of(event).end(event);
}
inline int tracer_add(event::Event& event, uint32_t flags) {
  if ((flags & event::kEfStart) == 0) return 0;
  tracer_start(event, 0);
  return event.hw.stopped ? EINVAL : 0;
}
inline void tracer_del(event::Event& event, uint32_t) { tracer_stop(event, event::kEfUpdate); }
inline int64_t tracer_snapshot(event::Event& event, event::OutputHandle& handle, uint64_t size) {
  TraceUnit& unit = unit_of(event);
  unit.log += 'S';
  const bool was_tracing = unit.tracing;
  unit.tracing = false;
  if (unit.in_snapshot) unit.in_snapshot();
  const int64_t copied = event::aux_area_of(event)->copy_newest(handle, size);
  unit.tracing = was_tracing;
  return copied;
}
inline int tracer_setup(event::Event&, event::AuxArea&, bool) { return 0; }
// Events with config1 set send their records into the trace.
inline bool tracer_takes_output(const event::Event& event) { return event.attr.config1 != 0; }

// Without an AUX area it is not on its unit, as Intel PT's events.
inline constexpr event::Pmu kTracer{
    .name = "tracer",
    .type = 100,
    .capabilities = event::kPmuCapExclusive | event::kPmuCapITrace | event::kPmuCapAuxPause,
    .software_context = true,
    .add = tracer_add,
    .del = tracer_del,
    .start = tracer_start,
    .stop = tracer_stop,
    .setup_aux = tracer_setup,
    .snapshot_aux = tracer_snapshot,
    .aux_output_match = tracer_takes_output};
// The same, for as many events as one likes.
inline constexpr event::Pmu kSharedTracer{.name = "shared tracer",
                                          .type = 101,
                                          .capabilities = event::kPmuCapAuxPause,
                                          .software_context = true,
                                          .add = tracer_add,
                                          .del = tracer_del,
                                          .start = tracer_start,
                                          .stop = tracer_stop,
                                          .setup_aux = tracer_setup,
                                          .snapshot_aux = tracer_snapshot,
                                          .aux_output_match = tracer_takes_output};
// An AUX area, but no samples from it and no pausing.
inline constexpr event::Pmu kStreamer{.name = "streamer",
                                      .type = 102,
                                      .add = tracer_add,
                                      .del = tracer_del,
                                      .start = tracer_start,
                                      .stop = tracer_stop,
                                      .setup_aux = tracer_setup};
// A hardware counter that cannot interrupt, and one that can send its records into a trace.
inline constexpr event::Pmu kCounter{
    .name = "counter", .type = 103, .capabilities = event::kPmuCapNoInterrupt};
inline constexpr event::Pmu kOutputCounter{
    .name = "output counter", .type = 104, .capabilities = event::kPmuCapAuxOutput};

}  // namespace auxtrail::perf_event::testing
