#include "perf_event/context.h"

#include <algorithm>

#include "event/group.h"
#include "event/overflow.h"

namespace auxtrail::perf_event {

using event::EventState;

void Context::install(PerfEvent& event) {
  events_.push_back(&event);
  event.context = this;
  event.time_stamp = time();
  if (event.group_leader == nullptr) return put_group_on(event);
  if (event.group_leader->state == EventState::kActive) put_on(event);
}

void Context::remove(PerfEvent& event) {
  update_group_time(event);  // until now the siblings were enabled or not as their leader was
  take_off(event);
  std::erase(events_, &event);
  event.context = nullptr;
}

void Context::leave_group(PerfEvent& event) {
  std::vector<PerfEvent*> siblings;
  for_each_sibling(event, [&siblings](PerfEvent& sibling) { siblings.push_back(&sibling); });
  for (PerfEvent* const sibling : siblings) {
    if (sibling->context != nullptr) sibling->context->update(*sibling);
  }
  event::put_aux_event(event);
  event::leave_group(event);
  for (PerfEvent* const sibling : siblings) {
    if (sibling->context != nullptr) sibling->context->put_group_on(*sibling);
  }
}

void Context::schedule_in(const event::Moment& where) {
  where_ = &where;
  since_ = now_;
  const std::vector<PerfEvent*> events = events_;
  for (const bool pinned : {true, false}) {
    for (PerfEvent* const event : events) {
      if (event->group_leader == nullptr && (event->attr.pinned != 0) == pinned) {
        put_group_on(*event);
      }
    }
  }
}

void Context::schedule_out() {
  for (PerfEvent* const event : events_) {
    if (event->group_leader == nullptr) take_group_off(*event);
  }
  ran_before_ = time();
  where_ = nullptr;
}

void Context::change_thread() {
  for (PerfEvent* const event : events_) {
    if (event->state == EventState::kActive) event->oncpu = where_->tid;
  }
}

void Context::enable(PerfEvent& event) {
  if (event.state >= EventState::kInactive || event.state < EventState::kError) return;
  update_group_time(event);
  event.state = EventState::kInactive;
  PerfEvent& leader = group_leader_of(event);
  if (&leader == &event) return put_group_on(event);
  if (leader.state == EventState::kActive) put_on(event);
}

void Context::disable(PerfEvent& event) {
  if (event.state <= EventState::kOff) return;
  update_group_time(event);
  if (event.group_leader == nullptr) {
    take_group_off(event);
  } else {
    take_off(event);
  }
  event.state = EventState::kOff;
}

void Context::run_pending() {
  for (PerfEvent* const event : events_) {
    if (!event->pending_disable.load()) continue;
    update_group_time(*event);
    (void)event::run_pending(*event);
  }
}

void Context::update(PerfEvent& event) {
  update_time(event);
  if (event.state == EventState::kActive && event.pmu->read != nullptr) event.pmu->read(event);
}

uint64_t Context::time() const { return ran_before_ + (running() ? now_ - since_ : 0); }

bool Context::may_be_on(const PerfEvent& event) const {
  if (!running() || event.state != EventState::kInactive) return false;
  return event.cpu == -1 || event.cpu == static_cast<int32_t>(where_->cpu);
}

bool Context::put_on(PerfEvent& event) {
  if (!may_be_on(event)) return true;
  update_time(event);
  event.moment = where_;
  return event.schedule_in(where_->tid, event::kEfStart) == 0;
}

void Context::take_off(PerfEvent& event) {
  update_time(event);
  event.schedule_out();
}

void Context::put_group_on(PerfEvent& leader) {
  if (!may_be_on(leader)) return;
  bool all_on = put_on(leader);
  for_each_sibling(leader, [&](PerfEvent& sibling) { all_on = all_on && put_on(sibling); });
  if (all_on) return;
  take_group_off(leader);
  if (leader.attr.pinned != 0) leader.state = EventState::kError;
}

void Context::take_group_off(PerfEvent& leader) {
  for_each_sibling(leader, [this](PerfEvent& sibling) { take_off(sibling); });
  take_off(leader);
}

// A sibling of a leader that is off is not enabled, whatever its own state.
void Context::update_time(PerfEvent& event) {
  const uint64_t passed = time() - event.time_stamp;
  event.time_stamp = time();
  const PerfEvent& leader = group_leader_of(event);
  const bool enabled = event.state >= EventState::kInactive && leader.state > EventState::kOff;
  if (enabled) event.time_enabled += passed;
  if (event.state == EventState::kActive) event.time_running += passed;
}

void Context::update_group_time(PerfEvent& event) {
  update_time(event);
  if (event.group_leader == nullptr) {
    for_each_sibling(event, [this](PerfEvent& sibling) { update_time(sibling); });
  }
}

}  // namespace auxtrail::perf_event
