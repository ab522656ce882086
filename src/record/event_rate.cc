#include "record/event_rate.h"

#include <fmt/format.h>

#include "channel/layout.h"

namespace auxtrail::record {
namespace {

bool each_one_counts(const perf_event_attr& attr) {
  return attr.type == PERF_TYPE_BREAKPOINT || attr.type == PERF_TYPE_TRACEPOINT;
}

uint64_t limited(uint64_t frequency_hz, uint64_t max_rate_hz, std::vector<std::string>& warnings) {
  if (frequency_hz <= max_rate_hz) return frequency_hz;
  const std::string_view whose =
      max_rate_hz < kMaxUnitRateHz
          ? "the limit can be raised via /proc/sys/kernel/perf_event_max_sample_rate"
          : "the trace unit can serve no more";
  warnings.push_back(
      fmt::format("Maximum frequency rate ({} Hz) exceeded, throttling from {} Hz to {} Hz; {}",
                  max_rate_hz, frequency_hz, max_rate_hz, whose));
  return max_rate_hz;
}

// The period of a clock is a time, and the same limit holds for it as for a frequency.
uint64_t limited_period(const perf_event_attr& attr, uint64_t period,
                        std::vector<std::string>& warnings) {
  constexpr uint64_t kShortestNs = 1000000000 / kMaxUnitRateHz;
  if (!channel::is_clock(attr) || period >= kShortestNs) return period;
  warnings.push_back(
      fmt::format("a period of {} is more often than the trace unit can serve; using {} ns", period,
                  kShortestNs));
  return kShortestNs;
}

RateTerm choose(const perf_event_attr& attr, const RecordOptions& options, uint64_t max_rate_hz) {
  if (options.period != 0) return {false, options.period};
  if (options.frequency_max) return {true, max_rate_hz};
  if (!options.frequency_hz && each_one_counts(attr)) return {false, 1};
  return {true, options.frequency_hz.value_or(kDefaultFrequencyHz)};
}

}  // namespace

Status set_rate(perf_event_attr& attr, const std::optional<RateTerm>& term,
                const RecordOptions& options, uint64_t max_rate_hz,
                std::vector<std::string>& warnings) {
  const RateTerm rate = term ? *term : choose(attr, options, max_rate_hz);
  if (rate.value == 0) {
    return fail({"choose the sampling rate", rate.is_frequency ? "-F 0" : "a period of 0",
                 "it must not be 0", "give a frequency with -F or a period with -c"});
  }
  attr.freq = rate.is_frequency ? 1 : 0;
  if (rate.is_frequency) {
    attr.sample_freq = limited(rate.value, max_rate_hz, warnings);
  } else {
    attr.sample_period = limited_period(attr, rate.value, warnings);
  }
  return {};
}

}  // namespace auxtrail::record
