// RingReader: the reading end of a perf data ring, the kernel's or ours, trusting neither.
//
// A ring of ours lies in the traced program's memory: the program may overwrite everything in it at
// any moment, also between two looks of the reader. So the reader
//  - takes size and position from itself alone; the shared page only says how far the writer is;
//  - copies each record into private memory first and checks the copy, which nobody can change any
//  more;
//  - never moves further than the ring's size per pass, so no content can make it loop;
//  - when a head or a record header makes no sense, drops everything up to the head, counts that
//  and goes on
//    from there: after damage the next intact record is found because both sides are at the same
//    head again.
//
// The head is loaded with acquire, the tail stored with release (D8); records may wrap byte by byte
// (D9). Not thread-safe: one reader for one ring. Not meant for the traced program, though nothing
// forbids it.
//
//   while (true) {
//     reader.begin();
//     while (auto record = reader.next(scratch); !record.empty()) consume(record);
//     reader.release();
//   }
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace auxtrail::event {

// Room for one record of any size; may serve many readers in turn.
struct RecordScratch {
  alignas(8) std::byte bytes[65536];
};

struct RingReaderCounters {
  uint64_t records = 0;
  uint64_t record_bytes = 0;
  uint64_t bad_heads = 0;  // data_head moved backwards, by more than the ring, or to an odd place
  uint64_t corrupt_headers = 0;  // record sizes that cannot be
  uint64_t dropped_bytes = 0;    // skipped after a corrupt header (after a bad head nobody knows)
};

class RingReader {
 public:
  RingReader() = default;

  // `size_bytes` is the size of the data area, a power of two, from the reader's own knowledge. The
  // memory must outlive the reader. Reading starts at `tail`: 0 for a fresh ring.
  RingReader(perf_event_mmap_page* control, const std::byte* data, uint64_t size_bytes,
             uint64_t tail = 0)
      : control_(control), data_(data), size_(size_bytes), tail_(tail), head_(tail) {}

  // Looks how far the writer is. Returns true if there is something to read.
  bool begin() {
    head_ = __atomic_load_n(&control_->data_head, __ATOMIC_ACQUIRE);
    if (head_ - tail_ > size_ || (head_ & 7) != 0) {
      ++counters_.bad_heads;
      tail_ = head_ &= ~uint64_t{7};
    }
    return head_ != tail_;
  }

  // The next whole record below the head that begin() saw, copied into `scratch`; its header.size
  // is its size, a multiple of 8, at least 8. Empty at the end. The view is valid until `scratch`
  // is used again.
  std::span<const std::byte> next(RecordScratch& scratch) {
    const uint64_t available = head_ - tail_;
    if (available < sizeof(perf_event_header)) return {};
    perf_event_header header;
    copy_out(reinterpret_cast<std::byte*>(&header), tail_, sizeof(header));
    if (header.size < sizeof(header) || header.size % 8 != 0 || header.size > available) {
      ++counters_.corrupt_headers;
      counters_.dropped_bytes += available;
      tail_ = head_;
      return {};
    }
    std::memcpy(scratch.bytes, &header, sizeof(header));
    copy_out(scratch.bytes + sizeof(header), tail_ + sizeof(header), header.size - sizeof(header));
    tail_ += header.size;
    ++counters_.records;
    counters_.record_bytes += header.size;
    return {scratch.bytes, header.size};
  }

  // Hands the space of all records read so far back to the writer. Call it even if nothing was
  // read: it also mends a tail that the program has overwritten.
  void release() { __atomic_store_n(&control_->data_tail, tail_, __ATOMIC_RELEASE); }

  // One pass: begin, consume(std::span<const std::byte>) for every record, release. Returns their
  // number.
  template <class Consume>
  uint64_t drain(RecordScratch& scratch, Consume&& consume) {
    uint64_t count = 0;
    begin();
    for (auto record = next(scratch); !record.empty(); record = next(scratch)) {
      consume(record);
      ++count;
    }
    release();
    return count;
  }

  [[nodiscard]] uint64_t tail() const { return tail_; }
  // Bytes that begin() saw and next() has not taken yet.
  [[nodiscard]] uint64_t pending_bytes() const { return head_ - tail_; }
  [[nodiscard]] const RingReaderCounters& counters() const { return counters_; }

 private:
  void copy_out(std::byte* to, uint64_t position, uint64_t size_bytes) const {
    const uint64_t offset = position & (size_ - 1);
    const uint64_t first = size_bytes < size_ - offset ? size_bytes : size_ - offset;
    std::memcpy(to, data_ + offset, first);
    std::memcpy(to + first, data_, size_bytes - first);
  }

  perf_event_mmap_page* control_ = nullptr;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  uint64_t tail_ = 0;
  uint64_t head_ = 0;
  RingReaderCounters counters_;
};

}  // namespace auxtrail::event
