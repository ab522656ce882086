// What the session's configuration means for windows and for continuous trace (WindowConfig).
#include "unit/session.h"
#include "unit/sys.h"
#include "unit/trigger.h"
#include "unit/window.h"
#include "unit/window_parts.h"

namespace auxtrail::unit {

using channel::SessionConfig;

namespace {

// However rare overflows are, a window's share of the time between them stays short.
void cap_period() {
  constexpr uint64_t kLongestNs = 100000000;
  if (window_config.period_ns > kLongestNs) window_config.period_ns = kLongestNs;
}

// Where packets may wait: what decides more than them, or is read at any time, needs every log.
bool defers_packets(const SessionConfig& config) {
  for (uint32_t i = 0; i < config.sampler_count; ++i) {
    if (is_counted(config.samplers[i])) return false;
  }
  return config.continuous != 0 && config.mode == channel::TraceMode::kSample &&
         config.filter_bytes == 0 && config.all_packets == 0;
}

// The stretches of continuous trace.
void configure_stretches(const SessionConfig& config) {
  constexpr uint64_t kHeaders = 64;
  uint64_t smallest = uint64_t{config.aux_pages} * channel::kPageBytes;
  uint64_t largest = 0;
  if (config.snapshot_bytes != 0 && config.snapshot_bytes < smallest) {
    smallest = config.snapshot_bytes;
  }
  for (uint32_t i = 0; i < config.sampler_count; ++i) {
    const uint64_t bytes = config.samplers[i].attr.aux_sample_size;
    if (bytes != 0 && bytes < smallest) smallest = bytes;
    if (bytes > largest) largest = bytes;
  }
  window_config.deferred = defers_packets(config) ? deferred_size(largest) : DeferredSize{0, 0};
  const uint64_t half = smallest / 2;
  window_config.psb_period_bytes = config.psb_period_bytes;
  if (half < window_config.psb_period_bytes + kHeaders) {
    window_config.psb_period_bytes = half > kHeaders ? half - kHeaders : 0;
  }
  const size_t units = half * 6 / kMaxPathBits;
  window_config.stretch_units = units < kMaxStretchUnits ? units : kMaxStretchUnits;
}

}  // namespace

void configure_windows(const SessionConfig& config) {
  window_config.pid = static_cast<uint32_t>(sys::getpid());
  window_config.exact_samplers = 0;
  window_config.reads_counts = false;
  for (uint32_t i = 0; i < config.sampler_count; ++i) {
    const channel::Sampler& sampler = config.samplers[i];
    window_config.periods[i] = period_of(sampler.attr);
    const bool exact = config.continuous != 0 && !channel::is_clock(sampler.trigger);
    if (exact) window_config.exact_samplers |= 1u << i;
    if ((sampler.attr.sample_type & PERF_SAMPLE_READ) != 0) window_config.reads_counts = true;
  }
  // Only clocks have a period in time; for anything else a millisecond is the rate windows are
  // sized for.
  const channel::Sampler& first = config.samplers[0];
  window_config.period_ns = channel::is_clock(first.trigger) || first.attr.freq != 0
                                ? window_config.periods[0]
                                : uint64_t{1000000};
  cap_period();
  configure_stretches(config);
  const uint64_t bytes = first.attr.aux_sample_size & ~uint64_t{7};
  const uint64_t area = uint64_t{config.aux_pages} * channel::kPageBytes;
  window_config.sample_bytes = bytes < area ? bytes : area;
}

void set_timer_rate(uint32_t hz) {
  window_config.periods[0] = window_config.period_ns = 1000000000 / hz;
  cap_period();
}

}  // namespace auxtrail::unit
