#include "event/aux_output.h"

#include <cerrno>

#include "event/sample.h"

namespace auxtrail::event {
namespace {

struct AuxRecord {
  perf_event_header header;
  uint64_t offset;
  uint64_t size;
  uint64_t flags;
};

// Of the flags, those that say something: that the area is in overwrite mode and in which format
// the trace is the reader knows.
constexpr uint64_t kTellingFlags =
    ~(uint64_t{PERF_AUX_FLAG_OVERWRITE} | uint64_t{PERF_AUX_FLAG_PMU_FORMAT_TYPE_MASK});

SampleData moment_of(const Event& event) {
  SampleData data;
  data.tid = event.oncpu;
  if (event.moment == nullptr) return data;
  data.pid = event.moment->pid;
  data.tid = event.moment->tid;
  data.cpu = event.moment->cpu;
  data.time_ns = event.moment->time_ns;
  return data;
}

}  // namespace

bool AuxOutput::begin(Event& event) {
  AuxArea* const area = aux_area_of(event);
  if (is_open() || area == nullptr || !area->attached()) return false;
  if (area->refuses_ || area->nest_ != 0) return false;
  area->nest_ = 1;
  event_ = &event;
  area_ = area;
  flags_ = 0;
  size_ = 0;
  wakeup_ = 0;
  head_ = area->overwrite() ? area->head() : area->written();
  if (area->overwrite() || find_room()) return true;
  event.pending_disable.store(true);
  wake_reader();
  event_ = nullptr;
  area->nest_ = 0;
  return false;
}

bool AuxOutput::find_room() {
  const uint64_t tail = area_->control_ != nullptr
                            ? __atomic_load_n(&area_->control_->aux_tail, __ATOMIC_ACQUIRE)
                            : 0;
  const uint64_t unread = head_ - tail;
  wakeup_ = area_->wakeup_ + area_->mode_.watermark;
  // One byte stays free, as in the data ring.
  if (unread < area_->size_) size_ = area_->size_ - 1 - unread;
  return size_ != 0;
}

void AuxOutput::end(uint64_t size_bytes) {
  if (!is_open()) return;
  uint64_t offset = head_;
  if (area_->overwrite()) {
    flags_ |= PERF_AUX_FLAG_OVERWRITE;
    offset = area_->head();
  } else {
    area_->written_.store(area_->written() + size_bytes);
  }
  // The record comes before the head: whoever sees the new head finds what it is about.
  if (size_bytes != 0 || (flags_ & kTellingFlags) != 0) write_record(offset, size_bytes);
  area_->publish();
  const bool truncated = (flags_ & PERF_AUX_FLAG_TRUNCATED) != 0;
  if (truncated) event_->pending_disable.store(true);
  if (wakeup_due() || truncated) wake_reader();
  event_ = nullptr;
  area_->nest_ = 0;
}

int AuxOutput::skip(uint64_t size_bytes) {
  if (!is_open() || size_bytes > size_) return ENOSPC;
  area_->written_.store(area_->written() + size_bytes);
  area_->publish();
  if (wakeup_due()) {
    wake_reader();
    wakeup_ = area_->wakeup_ + area_->mode_.watermark;
  }
  head_ = area_->written();
  size_ -= size_bytes;
  return 0;
}

bool AuxOutput::wakeup_due() {
  const uint64_t watermark = area_->mode_.watermark;
  if (area_->overwrite() || area_->written() - area_->wakeup_ < watermark) return false;
  area_->wakeup_ = area_->written() - area_->written() % watermark;
  return true;
}

void AuxOutput::write_record(uint64_t offset, uint64_t size_bytes) {
  DataRing* const ring = ring_of(*event_);
  if (ring == nullptr || !ring->attached()) return;
  const SampleData data = moment_of(*event_);
  const auto bytes = static_cast<uint16_t>(sizeof(AuxRecord) + sample_id_bytes(*event_));
  OutputHandle handle;
  if (!output_begin(handle, bytes, data, *event_)) return;
  handle.put(AuxRecord{{PERF_RECORD_AUX, 0, bytes}, offset, size_bytes, flags_});
  output_sample_id(handle, data, *event_);
  ring->end(handle);
}

void AuxOutput::wake_reader() {
  if (DataRing* const ring = ring_of(*event_); ring != nullptr) ring->wake();
}

}  // namespace auxtrail::event
