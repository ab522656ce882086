#include "event/thread_context.h"

#include <cerrno>

#include "event/group.h"
#include "event/software_pmu.h"

namespace auxtrail::event {

int ThreadContext::init(const ThreadConfig& config) {
  shutdown();
  int error = open_events(config);
  if (error == 0) error = attach_memory(config);
  if (error == 0) error = leader_.schedule_in(config.tid, 0);
  for (size_t i = 0; i < sampler_count_ && error == 0; ++i) {
    error = samplers_[i].schedule_in(config.tid, kEfStart);
  }
  if (error != 0) shutdown();
  return error;
}

int ThreadContext::open_events(const ThreadConfig& config) {
  if (config.leader == nullptr || config.sampler == nullptr || config.leader_pmu == nullptr) {
    return EINVAL;
  }
  if (config.more_sampler_count >= kMaxSamplers) return EINVAL;
  if (const int error =
          leader_.init(*config.leader, config.leader_id, *config.leader_pmu, config.leader_context);
      error != 0) {
    return error;
  }
  int error = open_sampler(*config.sampler, config.sampler_id, config.sampler_group);
  for (size_t i = 0; i < config.more_sampler_count && error == 0; ++i) {
    const ThreadConfig::Sampler& more = config.more_samplers[i];
    error = open_sampler(*more.attr, more.id, more.group);
  }
  return error;
}

int ThreadContext::open_sampler(const perf_event_attr& attr, uint64_t id, uint32_t group) {
  if (!sample_type_supported(attr)) return EOPNOTSUPP;
  Event& sampler = samplers_[sampler_count_];
  if (const int error = sampler.init(attr, id, kSoftwareTrigger, nullptr); error != 0) return error;
  groups_[sampler_count_] = group;
  for (size_t i = 0; i < sampler_count_ && group != 0; ++i) {
    if (groups_[i] != group) continue;
    join_group(samplers_[i], sampler);
    break;
  }
  ++sampler_count_;
  return need_aux_event(sampler) ? to_errno(get_aux_event(sampler, &leader_)) : 0;
}

int ThreadContext::attach_memory(const ThreadConfig& config) {
  if (const int error = ring_.attach(config.control, config.data, config.data_bytes); error != 0) {
    return error;
  }
  for (size_t i = 0; i < sampler_count_; ++i) samplers_[i].ring = &ring_;
  leader_.ring = &ring_;
  const AuxMode mode{.mirrored = config.aux_mirrored};
  if (const int error = aux_.attach(config.control, config.aux, config.aux_bytes, mode);
      error != 0) {
    return error;
  }
  if (leader_.pmu->setup_aux == nullptr) return EOPNOTSUPP;
  if (const int error = leader_.pmu->setup_aux(leader_, aux_, /*overwrite=*/true); error != 0) {
    return error;
  }
  leader_.aux = &aux_;
  return 0;
}

void ThreadContext::shutdown() {
  for (size_t i = 0; i < sampler_count_; ++i) {
    close_event(samplers_[i]);
    samplers_[i].ring = nullptr;
  }
  sampler_count_ = 0;
  const bool had_aux = leader_.aux != nullptr;
  close_event(leader_);
  if (had_aux && leader_.pmu->free_aux != nullptr) leader_.pmu->free_aux(leader_);
  leader_.aux = nullptr;
  leader_.ring = nullptr;
  aux_.detach();
  ring_.detach();
}

OverflowResult ThreadContext::overflow(const SampleRegs& regs, size_t sampler) {
  if (sampler >= sampler_count_) return {};
  SampleData data;
  data.ip = regs.ip;
  data.pid = regs.pid;
  data.tid = regs.tid;
  data.time_ns = regs.time_ns;
  data.addr = regs.addr;
  data.cpu = regs.cpu;
  data.period = regs.period;
  data.weight = regs.weight;
  const Outcome outcome = event_output(samplers_[sampler], data);
  return {outcome, outcome == Outcome::kWritten ? data.aux_size : 0};
}

}  // namespace auxtrail::event
