#include "record/session_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "abi/attr.h"
#include "abi/intel_pt.h"
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
  attr.sample_type |= kSamplerSampleType;  // besides PERF_SAMPLE_READ
  if (attr.aux_sample_size == 0) attr.sample_type &= ~uint64_t{PERF_SAMPLE_AUX};
  return attr;
}

// The event that the kernel turns into SIGTRAP: it writes no ring, so it has no sample_type.
perf_event_attr trigger_attr(const Sampler& sampler) {
  perf_event_attr attr = sampler.attr;
  attr.size = sizeof(attr);
  attr.aux_sample_size = 0;
  attr.sample_type = 0;
  attr.read_format = 0;
  attr.sigtrap = 1;
  attr.remove_on_exec = 1;
  attr.inherit_thread = attr.inherit;
  attr.sig_data = channel::kMagic;
  return attr;
}

Status check_ring(const RecordOptions& options, const Sampler& sampler) {
  const bool reads = (sampler.attr.sample_type & PERF_SAMPLE_READ) != 0;
  const size_t record_bytes =
      abi::kRecordHeaderBytes + abi::sample_fixed_bytes(kSamplerSampleType) + 8 +
      sampler.attr.aux_sample_size +
      (reads ? abi::read_bytes(sampler.attr.read_format, channel::kMaxSamplers) : 0);
  if (record_bytes >= size_t{options.data_pages} * channel::kPageBytes) {
    return fail({"size the data ring", fmt::format("-m {}", options.data_pages),
                 fmt::format("one sample takes {} bytes", record_bytes),
                 "give more data pages or a smaller --aux-sample"});
  }
  return {};
}

tl::unexpected<Error> cannot_record(const RecordOptions& options, std::string why,
                                    std::string fix) {
  return fail({"set up the trace unit", fmt::format("-e {}", options.event), std::move(why),
               std::move(fix)});
}

// The unit knows what it counts itself, the thread's clocks, and how often the kernel's events
// overflow; what these have counted in between, only the kernel knows.
Status check_values(const RecordOptions& options, const Sampler& sampler) {
  if (sampler.counter != Counter::kKernel || channel::is_clock(sampler.attr)) return {};
  if ((sampler.attr.sample_type & PERF_SAMPLE_READ) == 0) return {};
  if (!sampler.counts_only && sampler.attr.freq == 0) return {};
  return cannot_record(
      options, fmt::format("the count of {} can't be read in a sample", sampler.name),
      sampler.counts_only ? "only branches, instructions and clocks can follow in a group with :S"
                          : "give it a period with -c or period=");
}

// What this version does not record.
Status check_unit(const RecordOptions& options, const EventChoice& events) {
  if (events.samplers.size() >= channel::kMaxSamplers) {
    return cannot_record(options,
                         fmt::format("more than {} events at once", channel::kMaxSamplers - 1),
                         "name fewer");
  }
  for (const Sampler& sampler : events.samplers) {
    AUXTRAIL_TRY(check_values(options, sampler));
  }
  return {};
}

channel::Sampler::Kind kind_of(const Sampler& sampler) {
  if (sampler.counter == Counter::kBranches) return channel::Sampler::kBranches;
  if (sampler.counter == Counter::kInstructions) return channel::Sampler::kInstructions;
  return sampler.counts_only ? channel::Sampler::kNone : channel::Sampler::kKernelEvent;
}

// Values of several threads under one id could not be told apart.
Sampler without_inherited_values(Sampler sampler, std::vector<std::string>& warnings) {
  if ((sampler.attr.sample_type & PERF_SAMPLE_READ) == 0 || sampler.attr.inherit == 0) {
    return sampler;
  }
  sampler.attr.inherit = 0;
  warnings.push_back(
      fmt::format("{}: values are read for the command's first thread only, which alone is sampled",
                  sampler.name));
  return sampler;
}

channel::Sampler channel_sampler(const Sampler& sampler) {
  channel::Sampler result;
  result.kind = kind_of(sampler);
  if (result.kind == channel::Sampler::kKernelEvent) result.trigger = trigger_attr(sampler);
  result.attr = sampler_attr(sampler);
  result.group = sampler.read_group;
  return result;
}

// For the unit, in the kernel's own form.
Status set_filters(channel::SessionConfig& config, const AuxLeader& leader) {
  const auto bad = [](std::string where, std::string why, std::string fix) {
    return fail({"set the address filters", std::move(where), std::move(why), std::move(fix)});
  };
  constexpr size_t kRanges = abi::kSoftwareUnitCaps.num_address_ranges;
  if (leader.filters.size() > kRanges) {
    return bad(fmt::format("--filter, {} regions", leader.filters.size()),
               fmt::format("the trace unit has {} address ranges", kRanges),
               "trace fewer regions, or one that holds several");
  }
  for (const AddressFilter& filter : leader.filters) {
    if (filter.file.size() > channel::kMaxFilterPathBytes) {
      return bad(filter.file, "the path is too long for the trace unit",
                 fmt::format("use one of at most {} bytes", channel::kMaxFilterPathBytes));
    }
  }
  const std::string text = filters_text(leader.filters);
  static_assert(channel::kMaxFilterTextBytes >= kRanges * (channel::kMaxFilterPathBytes + 64));
  std::memcpy(config.filters, text.data(), text.size());
  config.filter_bytes = static_cast<uint32_t>(text.size());
  return {};
}

// What a program dies of, with how it got there: the newest AUX bytes that any sampler takes.
channel::Sampler fatal_signal_sampler(const channel::SessionConfig& config) {
  channel::Sampler sampler;
  sampler.kind = channel::Sampler::kFatalSignal;
  set_common(sampler.attr);
  sampler.attr.type = PERF_TYPE_SOFTWARE;
  sampler.attr.config = PERF_COUNT_SW_DUMMY;
  sampler.attr.exclude_kernel = 1;
  sampler.attr.sample_period = 1;
  sampler.attr.sample_type = kSamplerSampleType | PERF_SAMPLE_ADDR | PERF_SAMPLE_WEIGHT;
  for (uint32_t i = 0; i < config.sampler_count; ++i) {
    sampler.attr.aux_sample_size =
        std::max(sampler.attr.aux_sample_size, config.samplers[i].attr.aux_sample_size);
    sampler.attr.inherit = config.samplers[i].attr.inherit;
  }
  if (sampler.attr.aux_sample_size == 0) sampler.attr.sample_type &= ~uint64_t{PERF_SAMPLE_AUX};
  return sampler;
}

// Once a millisecond of CPU time, for threads that run natively.
perf_event_attr entry_attr(const RecordOptions& options) {
  Sampler sampler;
  sampler.attr.type = PERF_TYPE_SOFTWARE;
  sampler.attr.config = PERF_COUNT_SW_TASK_CLOCK;
  sampler.attr.sample_period = 1000000;
  sampler.attr.exclude_kernel = 1;
  sampler.attr.exclude_hv = 1;
  sampler.attr.inherit = options.inherit ? 1 : 0;
  return trigger_attr(sampler);
}

void add_sampler(SessionPlan& plan, channel::Sampler sampler, const std::string& name) {
  channel::SessionConfig& config = plan.config;
  sampler.id = kSamplerId + config.sampler_count;
  config.samplers[config.sampler_count++] = sampler;
  plan.names.push_back(name);
}

}  // namespace

Result<SessionPlan> plan_session(const RecordOptions& options, const MachineFacts& machine) {
  SessionPlan plan;
  AUXTRAIL_ASSIGN(plan.events, choose_events(options, machine));
  AUXTRAIL_TRY(check_unit(options, plan.events));
  plan.intel_pt = machine.intel_pt;
  plan.warnings = plan.events.warnings;
  channel::SessionConfig& config = plan.config;
  config.sampler_count = 0;
  const size_t aux_bytes = size_t{plan.events.aux_pages} * channel::kPageBytes;
  for (const Sampler& sampler : plan.events.samplers) {
    AUXTRAIL_TRY(check_ring(options, sampler));
    if (sampler.attr.aux_sample_size > aux_bytes) {
      plan.warnings.push_back(fmt::format(
          "AUX samples are cut to the AUX area's {} bytes; give more AUX pages with -m DATA,AUX",
          aux_bytes));
    }
    add_sampler(plan, channel_sampler(without_inherited_values(sampler, plan.warnings)),
                sampler.name);
    if (sampler.counts_only) continue;
    std::string& names = sampler.counter == Counter::kKernel ? plan.event_name : plan.counted_name;
    names += (names.empty() ? "" : ", ") + sampler.name;
  }
  if (plan.events.unit == UnitKind::kContinuous) {
    add_sampler(plan, fatal_signal_sampler(config), abi::kFatalSignalEvent);
  }
  config.leader = leader_attr(plan.events.leader);
  config.leader_id = kLeaderId;
  AUXTRAIL_TRY(set_filters(config, plan.events.leader));
  config.data_pages = options.data_pages;
  config.aux_pages = plan.events.aux_pages;
  config.inherit_children = options.inherit ? 1 : 0;
  config.mode = plan.events.mode;
  config.snapshot_bytes = plan.events.snapshot.bytes;
  config.entry = entry_attr(options);
  config.continuous = plan.events.unit == UnitKind::kContinuous ? 1 : 0;
  config.psb_period_bytes = static_cast<uint32_t>(psb_period_bytes(plan.events.leader.attr.config));
  return plan;
}

namespace {

// Where the unit counts alone, nothing else may have said that the kernel refuses its events.
void check_entry(SessionPlan& plan) {
  const bool first_is_kernels = plan.config.samplers[0].kind == channel::Sampler::kKernelEvent;
  if (plan.config.continuous == 0 || first_is_kernels) return;
  const int sys_errno = probe_event(plan.config.entry);
  if (sys_errno == 0) return;
  plan.warnings.push_back(fmt::format(
      "perf_event_open: {}; thread timers bring threads back into the trace (see auxtrail doctor)",
      std::strerror(sys_errno)));
}

}  // namespace

Status check_trigger(SessionPlan& plan) {
  for (uint32_t i = 0; i < plan.config.sampler_count; ++i) {
    const channel::Sampler& sampler = plan.config.samplers[i];
    if (sampler.kind != channel::Sampler::kKernelEvent) continue;
    const int sys_errno = probe_event(sampler.trigger);
    if (sys_errno == 0) continue;
    const bool denied = sys_errno == EACCES || sys_errno == EPERM || sys_errno == ENOSYS;
    if (denied && i == 0 && channel::is_clock(sampler.trigger)) {
      plan.warnings.push_back(
          fmt::format("perf_event_open: {}; thread timers take the samples (see auxtrail doctor)",
                      std::strerror(sys_errno)));
      continue;
    }
    return fail_errno("open the event", "-e " + plan.names[i], sys_errno,
                      denied
                          ? "sudo sysctl kernel.perf_event_paranoid=2, or use -e task-clock"
                          : "this machine does not have it or cannot signal it; use -e task-clock");
  }
  check_entry(plan);
  return {};
}

std::vector<perfdata::Event> file_events(const SessionPlan& plan) {
  std::vector<perfdata::Event> events;
  events.push_back({plan.config.leader, {plan.config.leader_id}, plan.events.leader.name, {}});
  for (uint32_t i = 0; i < plan.config.sampler_count; ++i) {
    const channel::Sampler& sampler = plan.config.samplers[i];
    events.push_back({sampler.attr, {sampler.id}, plan.names[i], {}});
  }
  return events;
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
