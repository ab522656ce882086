#include "event/overflow.h"

#include "event/aux_action.h"

namespace auxtrail::event {
namespace {

void count_down(Event& event) {
  if (event.event_limit.load() == 0) return;
  event.event_limit.subtract(1);
  if (event.event_limit.load() == 0) event.pending_disable.store(true);
}

}  // namespace

Outcome event_overflow(Event& event, SampleData& data) {
  const uint32_t action = aux_action(event.attr);
  Event* const leader = event.aux_event;
  if ((action & kAuxPause) != 0 && leader != nullptr) pause_aux(*leader, true);
  count_down(event);
  const Outcome outcome = event_output(event, data);
  if ((action & kAuxResume) != 0 && leader != nullptr) pause_aux(*leader, false);
  return outcome;
}

void pause_aux(Event& leader, bool pause) {
  AuxArea* const area = aux_area_of(leader);
  if (area == nullptr || !area->attached()) return;
  const AuxPauseGuard guard(*area);
  if (!guard.entered() || leader.hw.aux_paused == pause) return;
  leader.hw.aux_paused = pause;
  if (leader.state != EventState::kActive) return;
  if (pause && leader.pmu->stop != nullptr) leader.pmu->stop(leader, kEfPause);
  if (!pause && leader.pmu->start != nullptr) leader.pmu->start(leader, kEfResume);
}

bool run_pending(Event& event) {
  if (!event.pending_disable.exchange(false)) return false;
  if (event.state < EventState::kInactive) return false;
  for (Event* sibling = event.siblings; sibling != nullptr; sibling = sibling->next_sibling) {
    sibling->schedule_out();
  }
  event.schedule_out();
  event.state = EventState::kOff;
  return true;
}

}  // namespace auxtrail::event
