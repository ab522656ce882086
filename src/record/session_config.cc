#include "record/session_config.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "abi/sample_layout.h"

namespace auxtrail::record {
namespace {

constexpr uint64_t kLeaderSampleType =
    PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;
constexpr uint64_t kSamplerSampleType = kLeaderSampleType | PERF_SAMPLE_PERIOD | PERF_SAMPLE_AUX;

// What all events of a session have in common.
void set_common(perf_event_attr& attr) {
  attr.size = PERF_ATTR_SIZE_VER7;  // what Linux perf 6.1 reads
  attr.exclude_kernel = 1;
  attr.exclude_hv = 1;
  attr.sample_id_all = 1;
  attr.use_clockid = 1;
  attr.clockid = CLOCK_MONOTONIC;
}

void set_side_band(perf_event_attr& attr) {
  attr.mmap = 1;
  attr.mmap2 = 1;
  attr.comm = 1;
  attr.comm_exec = 1;
  attr.task = 1;
}

perf_event_attr leader_attr(const IntelPt& intel_pt) {
  perf_event_attr attr{};
  set_common(attr);
  set_side_band(attr);
  attr.type = intel_pt.pmu_type;
  attr.config = kIntelPtConfig;
  attr.sample_period = 1;
  attr.sample_type = kLeaderSampleType;
  return attr;
}

perf_event_attr sampler_attr(const EventChoice& event, const RecordOptions& options) {
  perf_event_attr attr = event.attr;
  set_common(attr);
  attr.sample_type = kSamplerSampleType;
  attr.aux_sample_size = options.aux_sample_bytes;
  attr.inherit = options.inherit ? 1 : 0;
  return attr;
}

// The event that the kernel turns into SIGTRAP: it writes no ring, so it has no sample_type.
perf_event_attr trigger_attr(const EventChoice& event, const RecordOptions& options) {
  perf_event_attr attr = event.attr;
  attr.size = sizeof(attr);
  attr.sigtrap = 1;
  attr.remove_on_exec = 1;
  attr.inherit = options.inherit ? 1 : 0;
  attr.inherit_thread = options.inherit ? 1 : 0;
  attr.sig_data = channel::kMagic;
  return attr;
}

void set_rate(perf_event_attr& attr, const RecordOptions& options, uint64_t frequency_hz) {
  attr.freq = options.period == 0 ? 1 : 0;
  if (options.period == 0) {
    attr.sample_freq = frequency_hz;
  } else {
    attr.sample_period = options.period;
  }
}

bool is_clock(const perf_event_attr& attr) {
  return attr.type == PERF_TYPE_SOFTWARE &&
         (attr.config == PERF_COUNT_SW_CPU_CLOCK || attr.config == PERF_COUNT_SW_TASK_CLOCK);
}

Status check_sizes(const RecordOptions& options) {
  if (options.aux_sample_bytes < kMinAuxSampleBytes ||
      options.aux_sample_bytes > kMaxAuxSampleBytes) {
    return fail({"size the AUX samples", fmt::format("--aux-sample={}", options.aux_sample_bytes),
                 "out of range",
                 fmt::format("use {} to {} bytes", kMinAuxSampleBytes, kMaxAuxSampleBytes)});
  }
  const size_t record_bytes = abi::kRecordHeaderBytes +
                              abi::sample_fixed_bytes(kSamplerSampleType) + 8 +
                              options.aux_sample_bytes;
  if (record_bytes >= size_t{options.data_pages} * channel::kPageBytes) {
    return fail({"size the data ring", fmt::format("-m {}", options.data_pages),
                 fmt::format("one sample takes {} bytes", record_bytes),
                 "give more data pages or a smaller --aux-sample"});
  }
  return {};
}

uint64_t choose_frequency(const RecordOptions& options, uint64_t max_rate_hz,
                          std::vector<std::string>& warnings) {
  if (options.frequency_max) return max_rate_hz;
  if (options.period != 0 || options.frequency_hz <= max_rate_hz) return options.frequency_hz;
  const std::string_view whose =
      max_rate_hz < kMaxUnitRateHz
          ? "the limit can be raised via /proc/sys/kernel/perf_event_max_sample_rate"
          : "the trace unit can serve no more";
  warnings.push_back(
      fmt::format("Maximum frequency rate ({} Hz) exceeded, throttling from {} Hz to {} Hz; {}",
                  max_rate_hz, options.frequency_hz, max_rate_hz, whose));
  return max_rate_hz;
}

// -c of a clock is a time, and the same limit holds for it as for -F.
void limit_period(channel::SessionConfig& config, std::vector<std::string>& warnings) {
  constexpr uint64_t kShortestNs = 1000000000 / kMaxUnitRateHz;
  if (config.trigger.freq != 0 || !is_clock(config.trigger)) return;
  if (config.trigger.sample_period >= kShortestNs) return;
  warnings.push_back(fmt::format("-c {} is more often than the trace unit can serve; using {} ns",
                                 config.trigger.sample_period, kShortestNs));
  config.trigger.sample_period = config.sampler.sample_period = kShortestNs;
}

}  // namespace

Result<SessionPlan> plan_session(const RecordOptions& options, const IntelPt& intel_pt,
                                 uint64_t max_rate_hz) {
  AUXTRAIL_ASSIGN(const EventChoice event, choose_event(options.event));
  if (options.period == 0 && options.frequency_hz == 0) {
    return fail({"choose the sampling rate", "-F 0", "a frequency must not be 0",
                 "give a frequency with -F or a period with -c"});
  }
  AUXTRAIL_TRY(check_sizes(options));
  SessionPlan plan;
  plan.event_name = event.name;
  plan.intel_pt = intel_pt;
  if (options.aux_sample_bytes > size_t{options.aux_pages} * channel::kPageBytes) {
    plan.warnings.push_back(fmt::format(
        "AUX samples are cut to the AUX area's {} bytes; give more AUX pages with -m DATA,AUX",
        size_t{options.aux_pages} * channel::kPageBytes));
  }
  const uint64_t frequency_hz = choose_frequency(options, max_rate_hz, plan.warnings);
  channel::SessionConfig& config = plan.config;
  config.trigger = trigger_attr(event, options);
  config.sampler = sampler_attr(event, options);
  config.leader = leader_attr(intel_pt);
  set_rate(config.trigger, options, frequency_hz);
  set_rate(config.sampler, options, frequency_hz);
  limit_period(config, plan.warnings);
  config.sampler_id = kSamplerId;
  config.leader_id = kLeaderId;
  config.data_pages = options.data_pages;
  config.aux_pages = options.aux_pages;
  config.inherit_children = options.inherit ? 1 : 0;
  return plan;
}

Status check_trigger(SessionPlan& plan) {
  const int sys_errno = probe_event(plan.config.trigger);
  if (sys_errno == 0) return {};
  const bool denied = sys_errno == EACCES || sys_errno == EPERM || sys_errno == ENOSYS;
  if (denied && is_clock(plan.config.trigger)) {
    plan.warnings.push_back(
        fmt::format("perf_event_open: {}; thread timers take the samples (see auxtrail doctor)",
                    std::strerror(sys_errno)));
    return {};
  }
  return fail_errno("open the event", "-e " + plan.event_name, sys_errno,
                    denied
                        ? "sudo sysctl kernel.perf_event_paranoid=2, or use -e task-clock"
                        : "this machine does not have it or cannot signal it; use -e task-clock");
}

std::vector<perfdata::Event> file_events(const SessionPlan& plan) {
  perfdata::Event leader{plan.config.leader, {plan.config.leader_id}, "intel_pt//u", {}};
  perfdata::Event sampler{plan.config.sampler, {plan.config.sampler_id}, plan.event_name, {}};
  return {leader, sampler};
}

perf_event_attr side_band_attr(const channel::SessionConfig& config) {
  perf_event_attr attr{};
  set_common(attr);
  set_side_band(attr);
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_DUMMY;
  attr.sample_type = config.leader.sample_type;
  attr.sample_period = 1;
  attr.inherit = 1;
  attr.disabled = 1;
  attr.enable_on_exec = 1;
  return attr;
}

}  // namespace auxtrail::record
