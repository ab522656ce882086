// TraceUnit: the registers of a trace unit, the seam between software and hardware.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// The PT PMU drives a unit through these functions and cannot tell whether packets come from
// silicon, from the software trace unit or from a test's script. They stand for: CTL.TraceEn
// (start, stop, running) and OUTPUT_MASK_PTRS (output). Configuration happens elsewhere and before;
// start and stop only flip TraceEn.
#pragma once

#include <cstdint>

namespace auxtrail::pmu {

struct OutputPosition {
  uint64_t offset = 0;  // inside the AUX area, where the next byte will go
  bool lapped = false;  // the whole area was passed since the last call that reported it
};

// A null member means that the unit has no such control. start and stop may be called in any state.
struct TraceUnit {
  void* self = nullptr;
  void (*configure)(void* self,
                    uint64_t config) = nullptr;  // filters and CTL bits; not in snapshots
  void (*start)(void* self) = nullptr;
  void (*stop)(void* self) = nullptr;  // on return all packets are in memory
  bool (*running)(void* self) = nullptr;
  // Null for a unit that appends with AuxArea::write() (the software unit in windowed mode): the
  // area then knows its head without being told.
  OutputPosition (*output)(void* self) = nullptr;
};

}  // namespace auxtrail::pmu
