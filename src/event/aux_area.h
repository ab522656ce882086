// AuxArea: the circular buffer that a trace unit fills and that samples are cut from.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// Overwrite mode is what AUX sampling needs (the area is mapped read-only by its reader, nobody
// moves aux_tail): the newest bytes replace the oldest, aux_head is the offset inside the buffer.
// In normal mode (mapped writable) the reader moves aux_tail and nothing that it has yet to read is
// overwritten; aux_head grows for ever, and only the transactions of aux_output.h move it.
// The area is filled either by write() or in place by a trace unit, whose position the PMU then
// reports with move_head().
//
//   bytes   [ newer ......... | head | older ............ ]      copy_newest(n) = the n bytes
//   before head,
//                                                                oldest first, wrapping at the end
//
// Bytes that no writer of this attachment produced are never handed out: they read as zeros (0x00
// is a PT PAD packet), even when the memory holds what a former owner left. All arithmetic is
// 64-bit. Reference: seed, perf_output_copy_aux; checklist C3, C6, E3.
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>

#include "event/data_ring.h"
#include "event/signal_atomic.h"

namespace auxtrail::event {

// How the area is mapped, and attr.aux_watermark (0: half of the area; of no use in overwrite
// mode).
struct AuxMode {
  bool overwrite = true;
  uint64_t watermark = 0;
  // The memory behind the area is the area again (mapped twice): claim() then never has to pad.
  bool mirrored = false;
};

class AuxArea {
 public:
  constexpr AuxArea() = default;
  AuxArea(const AuxArea&) = delete;
  AuxArea& operator=(const AuxArea&) = delete;

  // Fills the aux fields of a control page (what the reader does before mapping the kernel's AUX
  // area).
  static void init_control_page(perf_event_mmap_page& control, uint64_t aux_offset,
                                uint64_t aux_size);

  // Takes over `size_bytes` (a power of two, at least 8) at `bytes`; `control` may be null. The
  // area starts empty at offset 0. Returns 0 or EINVAL.
  [[nodiscard]] int attach(perf_event_mmap_page* control, std::byte* bytes, uint64_t size_bytes,
                           const AuxMode& mode = {});
  void detach();
  // No transaction begins from here on: the area is being unmapped (checklist B6).
  void refuse_transactions() { refuses_ = true; }
  [[nodiscard]] bool attached() const { return bytes_ != nullptr; }

  // For a unit that appends in place: `size_bytes` (at most the area's size) contiguous bytes at
  // the head. Where the area's end is too near, zeros (PAD packets) are appended up to there first,
  // unless the area is mirrored.
  // What was written of them becomes part of the area with commit().
  [[nodiscard]] std::byte* claim(uint64_t size_bytes);
  void commit(uint64_t size_bytes);
  // Appends `size_bytes` bytes, wrapping; of more than a whole area only the newest part stays.
  void write(const void* bytes, uint64_t size_bytes);
  // A unit that writes in place has reached `offset`; `lapped` if it passed the whole area since
  // the last report (else a full lap would look like nothing at all).
  void move_head(uint64_t offset, bool lapped);
  // Lays `size_bytes` bytes down at a position (taken modulo the size), as a unit does in normal
  // mode: the head stays where it is until the transaction ends. More than a whole area: as
  // write().
  void place(uint64_t position, const void* bytes, uint64_t size_bytes);

  // Copies the bytes from `from` up to `to` (both taken modulo the size) to `handle`; equal means
  // one full lap. Returns the number of bytes copied or -EFAULT if the handle was too small.
  [[nodiscard]] int64_t copy_out(OutputHandle& handle, uint64_t from, uint64_t to) const;
  // Copies the newest `size_bytes` bytes before the head, with leading zeros for what was never
  // written. `size_bytes` above size_bytes() is clipped. Same result as copy_out().
  [[nodiscard]] int64_t copy_newest(OutputHandle& handle, uint64_t size_bytes) const;

  [[nodiscard]] std::byte* bytes() const { return bytes_; }
  [[nodiscard]] uint64_t size_bytes() const { return size_; }
  // Offset inside the area where the next byte goes.
  [[nodiscard]] uint64_t head() const { return written() & (size_ - 1); }
  // Bytes produced since attach(); grows for ever.
  [[nodiscard]] uint64_t written() const { return written_.load(); }

  // True while a snapshot of this area is being taken: a sample that hits then must not take
  // another.
  [[nodiscard]] bool in_sampling() const { return in_sampling_.load(); }

  [[nodiscard]] bool overwrite() const { return mode_.overwrite; }
  [[nodiscard]] uint64_t watermark() const { return mode_.watermark; }
  // A unit is writing: a transaction is open.
  [[nodiscard]] bool in_transaction() const { return nest_ != 0; }

 private:
  friend class AuxSamplingGuard;
  friend class AuxOutput;
  friend class AuxPauseGuard;
  void publish();

  perf_event_mmap_page* control_ = nullptr;
  std::byte* bytes_ = nullptr;
  uint64_t size_ = 0;
  // The head is this modulo the size: one variable, so that a snapshot which interrupts an update
  // of the head cannot leave the two apart.
  SignalAtomic<uint64_t> written_{0};
  SignalAtomic<bool> in_sampling_{false};
  SignalAtomic<bool> in_pause_resume_{false};
  AuxMode mode_;
  bool refuses_ = false;
  uint32_t nest_ = 0;
  uint64_t wakeup_ = 0;  // the position at which the reader was last due a wake-up, rounded down
};

// Sets aux_in_sampling around a snapshot callback and nothing else. The compiler barriers keep the
// callback's memory accesses inside; the CPU needs none, for only this same thread can interrupt
// it.
class AuxSamplingGuard {
 public:
  explicit AuxSamplingGuard(AuxArea& area) : area_(area) {
    area_.in_sampling_.store(true);
    signal_barrier();
  }
  ~AuxSamplingGuard() {
    signal_barrier();
    area_.in_sampling_.store(false);
  }
  AuxSamplingGuard(const AuxSamplingGuard&) = delete;
  AuxSamplingGuard& operator=(const AuxSamplingGuard&) = delete;

 private:
  AuxArea& area_;
};

}  // namespace auxtrail::event
