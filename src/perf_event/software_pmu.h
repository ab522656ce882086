// The PMUs in software: software events, and breakpoints.
//
// They count by being told (count_software; the clocks too, for no time passes by itself) and
// overflow as the kernel's do: with a period of n, at every nth occurrence; if the samples carry
// the period (PERF_SAMPLE_PERIOD), at each. Reference: perf_event_open(2), PERF_TYPE_SOFTWARE and
// PERF_TYPE_BREAKPOINT.
#pragma once

#include <cstdint>

#include "event/pmu.h"
#include "event/sample.h"
#include "perf_event/perf_event.h"

namespace auxtrail::perf_event {

extern const event::Pmu kSoftwareEvents;
extern const event::Pmu kBreakpoints;
inline constexpr const event::Pmu* kSoftwarePmus[] = {&kSoftwareEvents, &kBreakpoints};
// Breakpoints that a CPU has room for.
inline constexpr int kBreakpointSlots = 4;

// Does the event count occurrences in user mode of software event `config`, or of accesses to
// address `config`?
[[nodiscard]] bool is_counted(const PerfEvent& event, uint32_t type, uint64_t config);
// `number` occurrences of what it counts.
void count_software(PerfEvent& event, uint64_t number, event::SampleData& data);

}  // namespace auxtrail::perf_event
