// kIntelPt: the Intel PT PMU, an AUX leader over trace-unit registers.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// The seed's pt_event_*: start and stop flip TraceEn, snapshot_aux stops the unit, reads the
// offset, moves the head, copies the newest bytes and restarts the unit if (and only if) the event
// was running. Two rules differ from the seed because it was wrong there:
//  - the snapshot stops the unit unconditionally: handle_nmi is cleared before the unit is off, so
//  a snapshot
//    that interrupts stop() finds handle_nmi 0 and a running unit;
//  - sampling needs the overwrite mode, and that is checked where samplers are known (the leader
//  has some),
//    not by the leader's own aux_sample_size, which is always 0.
//
// Set event.hw.context to a PtContext with its unit filled in before Event::init().
#pragma once

#include <cstdint>

#include "event/aux_area.h"
#include "event/event.h"
#include "event/pmu.h"
#include "event/signal_atomic.h"
#include "pmu/trace_unit.h"

namespace auxtrail::pmu {

// The seed's per-CPU struct pt.
struct PtContext {
  TraceUnit unit;
  // Windowed tracing: a sample holds no bytes from before the last start() (see
  // Pmu::aux_available).
  bool windowed = false;

  event::Event* event = nullptr;   // the event on the unit, from add() to del()
  event::AuxArea* area = nullptr;  // set by setup_aux
  event::SignalAtomic<bool> handle_nmi{
      false};                 // the event is running, and a snapshot must restart the unit
  bool session_open = false;  // from start() to stop(kEfUpdate); stop without it only pauses
  uint64_t window_start = 0;  // area->written() at the last start()

  // Begins a new window by hand, for a unit that is "running" all the time as far as the engine can
  // see: later samples hold only bytes written from here on.
  void begin_window() {
    if (area != nullptr) window_start = area->written();
  }
};

extern const event::Pmu kIntelPt;

}  // namespace auxtrail::pmu
