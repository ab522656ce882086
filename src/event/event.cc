#include "event/event.h"

#include <cerrno>

#include "event/aux_action.h"
#include "event/aux_area.h"

namespace auxtrail::event {
namespace {

void unlink_sampler(Event& leader, const Event& sampler) {
  Event** link = &leader.aux_samplers;
  while (*link != nullptr && *link != &sampler) link = &(*link)->aux_sampler_next;
  if (*link != nullptr) *link = sampler.aux_sampler_next;
}

bool acts_on_leader(const Event& event) {
  return (aux_action(event.attr) & (kAuxPause | kAuxResume)) != 0;
}

// Samples are cut from the newest bytes, which only overwrite mode keeps.
bool in_normal_mode(const Event& leader) {
  const AuxArea* const area = aux_area_of(leader);
  return area != nullptr && area->attached() && !area->overwrite();
}

}  // namespace

bool take_reference(Event& event) {
  uint64_t references = event.refcount.load();
  do {
    if (references == 0) return false;
  } while (!event.refcount.compare_exchange(references, references + 1));
  return true;
}

void drop_reference(Event& event) { event.refcount.subtract(1); }

int Event::init(const perf_event_attr& new_attr, uint64_t new_id, const Pmu& new_pmu,
                void* pmu_context) {
  attr = new_attr;
  id = new_id;
  state = attr.disabled != 0 ? EventState::kOff : EventState::kInactive;
  oncpu = 0;
  pmu = &new_pmu;
  hw.config = attr.config;
  hw.stopped = true;
  hw.aux_paused = (aux_action(attr) & kAuxStartPaused) != 0;
  hw.context = pmu_context;
  hw.addr_filters_generation = 0;
  const bool has_frequency = attr.freq != 0 && attr.sample_freq != 0;
  hw.sample_period = has_frequency ? 1 : attr.sample_period;
  hw.last_period = hw.sample_period;
  hw.period_left = static_cast<int64_t>(hw.sample_period);
  parent = nullptr;
  ring = nullptr;
  aux = nullptr;
  addr_filters = nullptr;
  moment = nullptr;
  task = 0;
  cpu = -1;
  clock = attr.use_clockid != 0 ? attr.clockid : -1;
  group_leader = nullptr;
  siblings = nullptr;
  next_sibling = nullptr;
  sibling_count = 0;
  aux_event = nullptr;
  aux_samplers = nullptr;
  aux_sampler_next = nullptr;
  count = 0;
  time_enabled = 0;
  time_running = 0;
  lost.store(0);
  event_limit.store(0);
  pending_disable.store(false);
  const int error = pmu->event_init != nullptr ? pmu->event_init(*this) : 0;
  refcount.store(error == 0 ? 1 : 0);
  return error;
}

int Event::schedule_in(uint32_t thread_id, uint32_t flags) {
  if (state == EventState::kActive) return 0;
  if (state <= EventState::kError || thread_id == 0 || pmu == nullptr) return EINVAL;
  oncpu = thread_id;
  const int error = pmu->add != nullptr ? pmu->add(*this, flags) : 0;
  if (error != 0) {
    oncpu = 0;
    return error;
  }
  signal_barrier();
  state = EventState::kActive;
  return 0;
}

void Event::schedule_out() {
  if (state != EventState::kActive) return;
  state = EventState::kInactive;  // first: a sample from here on must not look at a unit being
                                  // taken down
  signal_barrier();
  if (pmu->del != nullptr) pmu->del(*this, kEfUpdate);
  oncpu = 0;
}

int to_errno(AuxLink result) { return result == AuxLink::kOk ? 0 : EINVAL; }

int check_aux_attr(const perf_event_attr& attr, const Pmu& pmu) {
  const uint32_t action = aux_action(attr);
  const bool acts = (action & (kAuxPause | kAuxResume)) != 0;
  if (attr.aux_output != 0 && ((pmu.capabilities & kPmuCapAuxOutput) == 0 || acts)) {
    return EOPNOTSUPP;
  }
  if ((action & kAuxPause) != 0 && (action & kAuxResume) != 0) return EINVAL;
  const bool starts_paused = (action & kAuxStartPaused) != 0;
  return starts_paused && (pmu.capabilities & kPmuCapAuxPause) == 0 ? EOPNOTSUPP : 0;
}

bool need_aux_event(const Event& event) {
  return event.attr.aux_output != 0 || event.attr.aux_sample_size != 0 || acts_on_leader(event);
}

AuxLink get_aux_event(Event& event, Event* leader) {
  if (event.aux_event != nullptr) return AuxLink::kAlreadyLinked;
  if (leader == nullptr || leader == &event) return AuxLink::kNoLeader;
  const bool output = event.attr.aux_output != 0;
  const bool sample = event.attr.aux_sample_size != 0;
  const bool acts = acts_on_leader(event);
  if (output && (sample || acts)) return AuxLink::kBothKinds;
  if (output) {
    const Pmu* pmu = leader->pmu;
    if (pmu == nullptr || pmu->aux_output_match == nullptr || !pmu->aux_output_match(event)) {
      return AuxLink::kNoAuxOutput;
    }
  }
  if (acts && (leader->pmu == nullptr || (leader->pmu->capabilities & kPmuCapAuxPause) == 0)) {
    return AuxLink::kNoPause;
  }
  if (sample && (leader->pmu == nullptr || leader->pmu->snapshot_aux == nullptr)) {
    return AuxLink::kNoSnapshot;
  }
  if (sample && in_normal_mode(*leader)) return AuxLink::kNotOverwrite;
  if (!take_reference(*leader)) return AuxLink::kLeaderGone;
  event.aux_event = leader;
  event.aux_sampler_next = leader->aux_samplers;
  leader->aux_samplers = &event;
  return AuxLink::kOk;
}

void put_aux_event(Event& event) {
  if (Event* leader = event.aux_event; leader != nullptr) {
    event.aux_event = nullptr;
    unlink_sampler(*leader, event);
    event.aux_sampler_next = nullptr;
    drop_reference(*leader);
  }
  while (Event* sampler = event.aux_samplers) {
    event.aux_samplers = sampler->aux_sampler_next;
    sampler->aux_sampler_next = nullptr;
    sampler->aux_event = nullptr;
    sampler->schedule_out();
    if (sampler->state > EventState::kError) sampler->state = EventState::kError;
    drop_reference(event);
  }
}

void close_event(Event& event) {
  if (event.refcount.load() == 0) return;
  event.schedule_out();
  put_aux_event(event);
  event.state = EventState::kDead;
  drop_reference(event);
}

}  // namespace auxtrail::event
