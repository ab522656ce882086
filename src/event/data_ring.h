// DataRing: the writing end of a perf data ring, with the kernel's page layout and the kernel's
// rules.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// One thread of the program plays the part of one CPU: its "NMI" is the signal, its "interrupts
// off" is the signal mask, and its data ring and AUX area are its own. A writer may therefore be
// interrupted by another writer of the same thread at any instruction, and the inner one always
// finishes first; two threads never write one ring. Space is reserved by compare-and-swap on a
// private head; only the outermost writer publishes data_head, so a reader never sees a record that
// an interrupted writer has yet to fill in. (Whoever leaves a handler by longjmp while a writer is
// open breaks this; the unit masks signals instead.)
//
//   control page                       data, 2^n bytes
//   data_head  (we write, release)     ....[record][record]........
//   data_tail  (the reader writes)         ^tail            ^head       positions grow for ever,
//   masked on access
//
// Nothing in shared memory is trusted: data_head is written but read only at attach(), and every
// use of data_tail is masked, so a garbage tail can cost records (dropped or overwritten) but never
// touch memory outside the ring.
//
// Usable space is size - 1 bytes. Without room nothing is written and the loss is counted; the next
// success carries a PERF_RECORD_LOST in front, in the same reservation.
//
// How the reader has mapped the ring and what the event asks for make three more kinds:
//  - overwrite (mapped read-only): the tail is not looked at, the newest records replace the
//  oldest;
//  - backward (attr.write_backward): the head falls, so that the newest record is the first one
//  that
//    a reader finds at data_head, and whole records follow it as far as they are intact;
//  - paused (PERF_EVENT_IOC_PAUSE_OUTPUT): every record is a lost one.
// The reader is woken, poll_pending() that is, each time the head has moved by the watermark (a
// comparison with >), and by count_wakeup_event(). Reference: perf_event_open(2), section "MMAP
// layout"; checklist D1-D9.
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>

#include "event/signal_atomic.h"

namespace auxtrail::event {

class DataRing;

// A reservation being filled in. Every write is clipped to what was reserved.
class OutputHandle {
 public:
  OutputHandle() = default;
  OutputHandle(const OutputHandle&) = delete;
  OutputHandle& operator=(const OutputHandle&) = delete;

  // Appends bytes; returns how many did not fit any more (0 on success).
  uint64_t copy(const void* bytes, uint64_t size_bytes);
  // Appends zero bytes; same result as copy().
  uint64_t zero(uint64_t size_bytes);
  template <class T>
  void put(const T& value) {
    (void)copy(&value, sizeof(T));
  }
  [[nodiscard]] uint64_t remaining() const { return end_ - position_; }

 private:
  friend class DataRing;
  DataRing* ring_ = nullptr;
  uint64_t position_ = 0;
  uint64_t end_ = 0;
  uint64_t wakeups_ = 0;  // of the ring when this began
};

// What the mapping and the event that it belongs to say about a ring.
struct DataRingMode {
  bool overwrite = false;
  bool backward = false;
  uint64_t watermark = 0;  // attr.wakeup_watermark, or 0: half of the ring; clipped to the ring
};

class DataRing {
 public:
  constexpr DataRing() = default;
  DataRing(const DataRing&) = delete;
  DataRing& operator=(const DataRing&) = delete;

  // Fills a fresh control page as the kernel does: versions, header size, data_offset, data_size,
  // head and tail 0. Done once by whoever creates the memory, before a reader or writer looks at
  // it.
  static void init_control_page(perf_event_mmap_page& control, uint64_t data_offset,
                                uint64_t data_size);

  // Starts writing to a ring whose control page was initialised. A ring outlives its writers: the
  // new one continues at data_head, so the reader needs no notice. `size_bytes` is a power of two
  // and at least kMinSizeBytes. The memory must stay mapped until detach(). Returns 0 or EINVAL.
  [[nodiscard]] int attach(perf_event_mmap_page* control, std::byte* data, uint64_t size_bytes,
                           const DataRingMode& mode = {});
  void detach();
  [[nodiscard]] bool attached() const { return data_ != nullptr; }

  // Reserves `size_bytes` for `handle`, plus `lost_record_bytes` in front of it if records were
  // lost since the last success; `lost` then receives their number (the caller writes the LOST
  // record first), else 0. Returns false, with the loss counted, when there is no room. After true,
  // end() must follow.
  [[nodiscard]] bool begin(OutputHandle& handle, uint64_t size_bytes, uint64_t lost_record_bytes,
                           uint64_t& lost);
  // Ends the reservation: what was not written is zero-filled; the outermost writer publishes
  // data_head.
  void end(OutputHandle& handle);
  // Counts records that could not even be attempted; the next success reports them.
  void count_lost(uint64_t records);

  // While paused every record is lost. The reservation that is open meanwhile is not.
  void set_paused(bool paused) { paused_ = paused; }
  // To be called before end() by an event with attr.wakeup_events: the reader is woken at every
  // `wakeup_events`th call (D6).
  void count_wakeup_event(uint32_t wakeup_events);
  // Wakes the reader for another reason (the AUX area's).
  void wake() { poll_.store(true); }
  // poll(2) is to report the ring readable. take_poll() reports it once (D7).
  [[nodiscard]] bool poll_pending() const { return poll_.load(); }
  [[nodiscard]] bool take_poll() { return poll_.exchange(false); }

  [[nodiscard]] uint64_t size_bytes() const { return size_; }
  // Where the next record will begin.
  [[nodiscard]] uint64_t head() const { return head_.load(); }
  // Records lost and not yet reported by a LOST record.
  [[nodiscard]] uint64_t lost_pending() const { return lost_.load(); }
  [[nodiscard]] uint32_t nesting() const { return nest_.load(); }
  [[nodiscard]] bool backward() const { return mode_.backward; }

  static constexpr uint64_t kMinSizeBytes = 64;

 private:
  friend class OutputHandle;
  [[nodiscard]] bool reserve(uint64_t size_bytes, uint64_t& position);
  [[nodiscard]] bool reserve_otherwise(uint64_t size_bytes, uint64_t& position);
  void note_distance(uint64_t distance);
  void enter();
  void leave(uint64_t wakeups);
  void write_at(uint64_t position, const std::byte* bytes, uint64_t size_bytes);
  void zero_at(uint64_t position, uint64_t size_bytes);

  perf_event_mmap_page* control_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  DataRingMode mode_;
  bool paused_ = false;
  SignalAtomic<uint64_t> head_{0};
  SignalAtomic<uint64_t> lost_{0};
  SignalAtomic<uint32_t> nest_{0};
  // The distance written when the reader was last due a wake-up. It also moves by one at each
  // wake-up for another reason, so that the outermost writer sees that there was one.
  SignalAtomic<uint64_t> wakeups_{0};
  SignalAtomic<uint64_t> wakeup_events_{0};
  SignalAtomic<bool> poll_{false};
};

}  // namespace auxtrail::event
