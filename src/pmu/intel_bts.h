// kIntelBts: branch records (from, to, flags) in an AUX area, the second AUX PMU that the seed
// names.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// As the kernel's intel_bts. In overwrite mode the CPU goes round in the area's whole records; in
// normal mode a transaction ends at a threshold before the free part's end, the rest of the area
// that is too short to go on in becomes zeros, and a new transaction begins.
//
//   area:  [ record | record | ............ | record | size % 24 bytes that are never used ]
//
// Sampling. "AUX capable PMUs need to explicitly add support for sampling": kIntelBts has none, as
// in the kernel, so a group under it refuses events with aux_sample_size (EINVAL).
// kIntelBtsSampling is the same PMU with support added. Nothing in the hardware stands against it
// (DEBUGCTL can be written in an NMI, the index is in memory); but an AUX sample must be of use
// alone, so it holds whole records only, the newest last, and the bytes before them that make up
// the size are zeros.
//
// Set event.hw.context to a BtsContext before Event::init().
#pragma once

#include <cstdint>

#include "event/aux_area.h"
#include "event/aux_output.h"
#include "event/event.h"
#include "event/pmu.h"
#include "event/signal_atomic.h"
#include "pmu/bts_unit.h"

namespace auxtrail::pmu {

struct BtsContext {
  BtsUnit unit;

  event::Event* event = nullptr;   // from add() to del()
  event::AuxArea* area = nullptr;  // set by setup_aux
  event::AuxOutput output;         // the transaction
  // Running: who stops the CPU's tracing in an "NMI" must start it again. False before it is off.
  event::SignalAtomic<bool> active{false};
  event::SignalAtomic<bool> configured{false};  // the DS area names a place in the AUX area
  bool snapshot = false;                        // overwrite mode
  uint64_t used_bytes = 0;                      // of the area, in whole records
  uint64_t head = 0;                            // offset of the next record, when last looked at
  uint64_t end = 0;                             // offset of the free part's end
  DebugStore ds_before;                         // somebody else's, from before the transaction
};

extern const event::Pmu kIntelBts;
extern const event::Pmu kIntelBtsSampling;

// The interrupt at the threshold. False if it was not for BTS.
bool bts_interrupt(BtsContext& bts);

}  // namespace auxtrail::pmu
