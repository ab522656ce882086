// event_overflow: everything that an overflow of an event does, around its sample.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
//   pause the AUX leader (attr aux_pause) → count down event_limit → sample → resume it
//   (aux_resume)
//
// What cannot be done in an "NMI" is put off: the event's pending_disable says that it is to be
// disabled, and run_pending() does it as soon as it is safe. Reference: perf_event_open(2),
// PERF_EVENT_IOC_REFRESH, aux_action; checklist F1.
#pragma once

#include "event/aux_area.h"
#include "event/event.h"
#include "event/sample.h"

namespace auxtrail::event {

Outcome event_overflow(Event& event, SampleData& data);

// Pauses or resumes the tracing of an AUX leader. Without effect if it is so already, if it has no
// AUX area, or if this interrupts another pausing or resuming on the same area. A leader that is
// not active only remembers it.
void pause_aux(Event& leader, bool pause);

// Disables the event if that is pending: off its PMU, its siblings with it if it leads a group,
// state kOff. True if it did.
bool run_pending(Event& event);

// Marks the area as being paused or resumed. `entered` is false inside of another.
class AuxPauseGuard {
 public:
  explicit AuxPauseGuard(AuxArea& area) : area_(area), entered_(!area.in_pause_resume_.load()) {
    if (entered_) area_.in_pause_resume_.store(true);
    signal_barrier();
  }
  ~AuxPauseGuard() {
    signal_barrier();
    if (entered_) area_.in_pause_resume_.store(false);
  }
  AuxPauseGuard(const AuxPauseGuard&) = delete;
  AuxPauseGuard& operator=(const AuxPauseGuard&) = delete;
  [[nodiscard]] bool entered() const { return entered_; }

 private:
  AuxArea& area_;
  bool entered_;
};

}  // namespace auxtrail::event
