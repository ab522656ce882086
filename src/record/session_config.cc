#include "record/session_config.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "abi/sample_layout.h"
#include "record/intel_pt_terms.h"

namespace auxtrail::record {
namespace {

constexpr uint64_t kLeaderSampleType =
    PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER;
constexpr uint64_t kSamplerSampleType = kLeaderSampleType | PERF_SAMPLE_PERIOD | PERF_SAMPLE_AUX;

// What all events of a session have in common.
void set_common(perf_event_attr& attr) {
  attr.size = PERF_ATTR_SIZE_VER7;  // what Linux perf 6.1 reads
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

perf_event_attr leader_attr(const AuxLeader& leader) {
  perf_event_attr attr = leader.attr;
  set_common(attr);
  set_side_band(attr);
  attr.exclude_kernel = 1;
  attr.sample_period = 1;
  attr.sample_type = kLeaderSampleType;
  return attr;
}

perf_event_attr sampler_attr(const Sampler& sampler) {
  perf_event_attr attr = sampler.attr;
  set_common(attr);
  attr.sample_type = kSamplerSampleType;
  return attr;
}

// The event that the kernel turns into SIGTRAP: it writes no ring, so it has no sample_type.
perf_event_attr trigger_attr(const Sampler& sampler) {
  perf_event_attr attr = sampler.attr;
  attr.size = sizeof(attr);
  attr.aux_sample_size = 0;
  attr.sigtrap = 1;
  attr.remove_on_exec = 1;
  attr.inherit_thread = attr.inherit;
  attr.sig_data = channel::kMagic;
  return attr;
}

bool is_clock(const perf_event_attr& attr) {
  return attr.type == PERF_TYPE_SOFTWARE &&
         (attr.config == PERF_COUNT_SW_CPU_CLOCK || attr.config == PERF_COUNT_SW_TASK_CLOCK);
}

Status check_ring(const RecordOptions& options, const Sampler& sampler) {
  const size_t record_bytes = abi::kRecordHeaderBytes +
                              abi::sample_fixed_bytes(kSamplerSampleType) + 8 +
                              sampler.attr.aux_sample_size;
  if (record_bytes >= size_t{options.data_pages} * channel::kPageBytes) {
    return fail({"size the data ring", fmt::format("-m {}", options.data_pages),
                 fmt::format("one sample takes {} bytes", record_bytes),
                 "give more data pages or a smaller --aux-sample"});
  }
  return {};
}

// What this version records: AUX samples at one event.
Status check_unit(const RecordOptions& options, const EventChoice& events) {
  if (events.mode == TraceMode::kSample && events.samplers.size() == 1 &&
      events.samplers.front().counter == Counter::kKernel) {
    return {};
  }
  return fail({"set up the trace unit", fmt::format("-e {}", options.event),
               "this version does not record full trace, snapshots, several events or the unit's "
               "own counters",
               "use one event that interrupts the program"});
}

}  // namespace

Result<SessionPlan> plan_session(const RecordOptions& options, const MachineFacts& machine) {
  SessionPlan plan;
  AUXTRAIL_ASSIGN(plan.events, choose_events(options, machine));
  AUXTRAIL_TRY(check_unit(options, plan.events));
  const Sampler& sampler = plan.events.samplers.front();
  AUXTRAIL_TRY(check_ring(options, sampler));
  plan.event_name = sampler.name;
  plan.intel_pt = machine.intel_pt;
  plan.warnings = plan.events.warnings;
  const size_t aux_bytes = size_t{plan.events.aux_pages} * channel::kPageBytes;
  if (sampler.attr.aux_sample_size > aux_bytes) {
    plan.warnings.push_back(fmt::format(
        "AUX samples are cut to the AUX area's {} bytes; give more AUX pages with -m DATA,AUX",
        aux_bytes));
  }
  channel::SessionConfig& config = plan.config;
  config.trigger = trigger_attr(sampler);
  config.sampler = sampler_attr(sampler);
  config.leader = leader_attr(plan.events.leader);
  config.sampler_id = kSamplerId;
  config.leader_id = kLeaderId;
  config.data_pages = options.data_pages;
  config.aux_pages = plan.events.aux_pages;
  config.inherit_children = options.inherit ? 1 : 0;
  config.continuous = plan.events.unit == UnitKind::kContinuous ? 1 : 0;
  config.psb_period_bytes = static_cast<uint32_t>(psb_period_bytes(plan.events.leader.attr.config));
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
  perfdata::Event leader{plan.config.leader, {plan.config.leader_id}, plan.events.leader.name, {}};
  perfdata::Event sampler{plan.config.sampler, {plan.config.sampler_id}, plan.event_name, {}};
  return {leader, sampler};
}

perf_event_attr side_band_attr(const channel::SessionConfig& config) {
  perf_event_attr attr{};
  set_common(attr);
  set_side_band(attr);
  attr.exclude_kernel = 1;
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
