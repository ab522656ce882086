#include "event/thread_context.h"

#include <cerrno>

#include "event/software_pmu.h"

namespace auxtrail::event {

int ThreadContext::init(const ThreadConfig& config) {
  shutdown();
  int error = open_events(config);
  if (error == 0) error = attach_memory(config);
  if (error == 0) error = leader_.schedule_in(config.tid, 0);
  if (error == 0) error = sampler_.schedule_in(config.tid, kEfStart);
  if (error != 0) shutdown();
  return error;
}

int ThreadContext::open_events(const ThreadConfig& config) {
  if (config.leader == nullptr || config.sampler == nullptr || config.leader_pmu == nullptr) {
    return EINVAL;
  }
  if (!sample_type_supported(*config.sampler)) return EOPNOTSUPP;
  if (const int error =
          leader_.init(*config.leader, config.leader_id, *config.leader_pmu, config.leader_context);
      error != 0) {
    return error;
  }
  if (const int error =
          sampler_.init(*config.sampler, config.sampler_id, kSoftwareTrigger, nullptr);
      error != 0) {
    return error;
  }
  return need_aux_event(sampler_) ? to_errno(get_aux_event(sampler_, &leader_)) : 0;
}

int ThreadContext::attach_memory(const ThreadConfig& config) {
  if (const int error = ring_.attach(config.control, config.data, config.data_bytes); error != 0) {
    return error;
  }
  sampler_.ring = &ring_;
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
  close_event(sampler_);
  const bool had_aux = leader_.aux != nullptr;
  close_event(leader_);
  if (had_aux && leader_.pmu->free_aux != nullptr) leader_.pmu->free_aux(leader_);
  leader_.aux = nullptr;
  leader_.ring = nullptr;
  sampler_.ring = nullptr;
  aux_.detach();
  ring_.detach();
}

OverflowResult ThreadContext::overflow(const SampleRegs& regs) {
  SampleData data;
  data.ip = regs.ip;
  data.pid = regs.pid;
  data.tid = regs.tid;
  data.time_ns = regs.time_ns;
  data.addr = regs.addr;
  data.cpu = regs.cpu;
  data.period = regs.period;
  const Outcome outcome = event_output(sampler_, data);
  return {outcome, outcome == Outcome::kWritten ? data.aux_size : 0};
}

}  // namespace auxtrail::event
