// PtBuffer: where in the AUX area a trace unit writes, as its registers say it and as offsets.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// Output goes through ToPA tables, but for an area of one page in overwrite mode on a unit with
// single-range output (larger single ranges corrupt data on some CPUs: errata TGL052, ADL037,
// RPL017). In overwrite mode no region has STOP or INT: the unit goes round, nobody is interrupted.
// In normal mode marks bound what may be written:
//
//     tail             head            INT at the watermark       STOP: the last region that is
//     free
//      v                v                        v                  v
//   ...[ not yet read   ][ region | region | region(INT) | region(STOP+INT) ][ not yet read ...
//
// All arithmetic is 64-bit. Nothing here changes while a snapshot may come in, so that one taken in
// the middle of start() or stop() cannot mix up two positions. Reference: seed, pt_buffer_*.
#pragma once

#include <cstdint>

#include "pmu/topa.h"
#include "pmu/trace_unit.h"

namespace auxtrail::event {
class AuxArea;
}

namespace auxtrail::pmu {

struct PtPosition {  // of the next byte; offset may be the region's size if the unit stopped there
  uint64_t region = 0;
  uint64_t offset = 0;
};

struct PtBufferConfig {
  bool snapshot = true;  // overwrite mode
  // Regions are at most this large (kernels allocate AUX memory in pieces up to 4 MiB); also at
  // most as the area's alignment allows.
  uint32_t max_region_shift = 22;
  TopaMemory tables;
};

class PtBuffer {
 public:
  // 0, ENOMEM (too little memory for the tables) or EINVAL (the unit cannot write to this area).
  [[nodiscard]] int setup(const event::AuxArea& area, const abi::PtCaps& caps,
                          const PtBufferConfig& config);

  [[nodiscard]] bool snapshot() const { return snapshot_; }
  [[nodiscard]] bool single() const { return single_; }
  [[nodiscard]] bool multiple_entries() const { return multiple_entries_; }
  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] uint64_t region_bytes() const {
    return single_ ? size_bytes_ : tables_.region_bytes();
  }
  [[nodiscard]] TopaTables& tables() { return tables_; }

  // The place of `head`, a position that grows for ever.
  [[nodiscard]] PtPosition position_at(uint64_t head) const;
  // And the offset in the area: from 0 to its size, both included.
  [[nodiscard]] uint64_t offset_of(const PtPosition& position) const;
  [[nodiscard]] PtPosition next_region(const PtPosition& position) const;

  // The seed's pt_config_buffer and pt_read_offset. read is false if the registers name none of our
  // regions.
  void program(const TraceUnit& unit, const PtPosition& position) const;
  [[nodiscard]] bool read(const TraceUnit& unit, PtPosition& position) const;

  // Marks for a unit that may write `free_bytes` from `head` on and should interrupt at `wakeup`.
  // 0, or EINVAL if the free part ends inside the region where it begins: a unit cannot stop there.
  [[nodiscard]] int set_marks(uint64_t head, uint64_t free_bytes, uint64_t wakeup);

 private:
  void clear_marks();
  [[nodiscard]] uint64_t& entry_before(uint64_t boundary);

  TopaTables tables_;
  uint64_t base_ = 0;
  uint64_t size_bytes_ = 0;
  uint64_t* stop_entry_ = nullptr;
  uint64_t* interrupt_entry_ = nullptr;
  bool snapshot_ = true;
  bool single_ = false;
  bool multiple_entries_ = true;
};

}  // namespace auxtrail::pmu
