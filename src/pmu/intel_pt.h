// kIntelPt: the Intel PT PMU, an AUX leader over the registers of a trace unit.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// The seed's pt_event_*. From start to stop(kEfUpdate) lasts a session: one transaction on the AUX
// area. In overwrite mode the unit goes round in the area, and snapshot_aux stops it, copies the
// newest bytes and starts it again; in normal mode (full trace) the unit interrupts at the
// watermark and where the free part ends, and pt_interrupt() begins a new transaction.
// Configuration is written by start alone; snapshot, interrupt, pause and resume only flip TraceEn.
//
// What may interrupt what: snapshot_aux, pause, resume and pt_interrupt come as "NMIs", into start
// and stop and (signals nest) into each other. So
//  - handle_nmi is 0 before stop() has the unit off: who interrupts stop() there stops the unit
//    itself, unconditionally, and does not start it again;
//  - ctl says TraceEn after the register does, so it may be wrong for whoever interrupts there:
//    stopping does not go by it, and whoever started the unit puts ctl right, or stops it again;
//  - in_hand is set while anybody starts or stops the unit, and while it is stopped: pausing and
//    resuming leave it alone then, and whoever has it in hand looks for that at the end.
// Rules where the seed was wrong, or still is: docs/design/pmus.md.
//
// Set event.hw.context to a PtContext before Event::init().
#pragma once

#include <cstdint>

#include "event/aux_area.h"
#include "event/aux_output.h"
#include "event/event.h"
#include "event/pmu.h"
#include "event/signal_atomic.h"
#include "pmu/pt_buffer.h"
#include "pmu/pt_filters.h"
#include "pmu/trace_unit.h"

namespace auxtrail::pmu {

// The seed's per-CPU struct pt.
struct PtContext {
  TraceUnit unit;
  // Windowed tracing: a sample holds no bytes from before the last start() (see
  // Pmu::aux_available).
  bool windowed = false;

  // For a unit with registers: memory for its output tables and the largest regions.
  TopaMemory tables;
  uint32_t max_region_shift = PtBufferConfig{}.max_region_shift;
  // The AUX area is zeros when it is set up (fresh from the system), so nobody has to make it so.
  bool area_is_zeroed = false;
  // After a snapshot the trace goes on with a PSB, so that the next sample, however short a piece
  // of trace it has, can be decoded. Costs two accesses to RTIT_STATUS.
  bool psb_after_snapshot = true;

  event::Event* event = nullptr;   // the event on the unit, from add() to del()
  event::AuxArea* area = nullptr;  // set by setup_aux, or the parent's for an inherited event
  event::AuxOutput output;         // the session's transaction
  PtBuffer own_buffer;             // of the area that was set up here
  PtBuffer* buffer = nullptr;      // of `area`
  PtFilters filters;
  event::SignalAtomic<uint64_t> ctl{0};         // RTIT_CTL as last written
  event::SignalAtomic<bool> handle_nmi{false};  // running: a snapshot must restart the unit
  event::SignalAtomic<bool> in_hand{true};      // nobody may pause or resume the unit now
  event::SignalAtomic<bool> programmed{false};  // the output registers name a place in the area
  event::SignalAtomic<bool> vmx_on{false};
  event::SignalAtomic<bool> partial{false};  // the session's trace has gaps
  bool session_open = false;  // from start() to stop(kEfUpdate); stop without it only pauses
  uint64_t window_start = 0;  // area->written() at the last start()

  // Begins a new window by hand, for a unit that is "running" all the time as far as the engine can
  // see: later samples hold only bytes written from here on.
  void begin_window() {
    if (area != nullptr) window_start = area->written();
  }
};

extern const event::Pmu kIntelPt;

// The unit's interrupt: a region with INT is full.
void pt_interrupt(PtContext& pt);

// The CPU enters or leaves VMX root operation. A unit that cannot trace there is off in between,
// and the session is PARTIAL.
void pt_handle_vmx(PtContext& pt, bool on);

}  // namespace auxtrail::pmu
