// AuxOutput: one transaction of a trace unit on its AUX area, from a PMU's start() to its stop().
//
// IN-PROCESS CODE: no allocation, no locks, no libc.
//
// begin() finds out how much room there is, the unit writes, end() says how much it wrote. In
// normal mode that moves aux_head, which the reader follows with aux_tail; a PERF_RECORD_AUX in the
// data ring, written first, tells it what the new bytes are. Without room there is no transaction:
// the event is going to be disabled, the reader woken. In overwrite mode the unit moves the area's
// head itself, there is always room, and a record is only written where there is something to say.
//
//   normal mode:  [ read | not read yet ...... | room ...... ]
//                        ^aux_tail             ^head()  head() + size()   all grow for ever
//
// The reader's aux_tail is not trusted: one that cannot be means no room.
// Reference: perf_event_open(2), "PERF_RECORD_AUX", aux_watermark; checklist E1 to E7.
#pragma once

#include <cstdint>

#include "event/aux_area.h"
#include "event/event.h"

namespace auxtrail::event {

class AuxOutput {
 public:
  constexpr AuxOutput() = default;
  AuxOutput(const AuxOutput&) = delete;
  AuxOutput& operator=(const AuxOutput&) = delete;

  // Opens a transaction of `event` on its area (its parent's if it is inherited). False if there is
  // no area, if it is being unmapped, in a transaction already (one unit writes an area at a time)
  // or full. A full one disables the event (pending_disable) and wakes the reader.
  [[nodiscard]] bool begin(Event& event);
  // `size_bytes` bytes from head() on are written (and in memory). Closes the transaction.
  void end(uint64_t size_bytes);
  // Leaves out `size_bytes` bytes (a unit's alignment needs it). 0, or ENOSPC beyond the room.
  [[nodiscard]] int skip(uint64_t size_bytes);
  // PERF_AUX_FLAG_* for the record. TRUNCATED also disables the event and wakes the reader, at
  // end(). OVERWRITE is not the unit's to say and left out.
  void flag(uint64_t flags) { flags_ |= flags & ~uint64_t{PERF_AUX_FLAG_OVERWRITE}; }

  [[nodiscard]] bool is_open() const { return event_ != nullptr; }
  [[nodiscard]] AuxArea* area() const { return area_; }
  [[nodiscard]] uint64_t head() const { return head_; }
  // Bytes that may be written; 0 in overwrite mode, where there is no limit.
  [[nodiscard]] uint64_t size() const { return size_; }
  // The position at which the reader wants to be woken: good units interrupt there.
  [[nodiscard]] uint64_t wakeup() const { return wakeup_; }

 private:
  [[nodiscard]] bool find_room();
  [[nodiscard]] bool wakeup_due();
  void write_record(uint64_t offset, uint64_t size_bytes);
  void wake_reader();

  Event* event_ = nullptr;
  AuxArea* area_ = nullptr;
  uint64_t head_ = 0;
  uint64_t size_ = 0;
  uint64_t wakeup_ = 0;
  uint64_t flags_ = 0;
};

}  // namespace auxtrail::event
