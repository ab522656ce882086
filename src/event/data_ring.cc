#include "event/data_ring.h"

#include <cerrno>

#include "event/inline_copy.h"

namespace auxtrail::event {
namespace {

constexpr bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace

uint64_t OutputHandle::copy(const void* bytes, uint64_t size_bytes) {
  const uint64_t fits = size_bytes < remaining() ? size_bytes : remaining();
  ring_->write_at(position_, static_cast<const std::byte*>(bytes), fits);
  position_ += fits;
  return size_bytes - fits;
}

uint64_t OutputHandle::zero(uint64_t size_bytes) {
  const uint64_t fits = size_bytes < remaining() ? size_bytes : remaining();
  ring_->zero_at(position_, fits);
  position_ += fits;
  return size_bytes - fits;
}

void DataRing::init_control_page(perf_event_mmap_page& control, uint64_t data_offset,
                                 uint64_t data_size) {
  clear_bytes(reinterpret_cast<std::byte*>(&control), sizeof(control));
  control.cap_bit0_is_deprecated = 1;
  control.size = offsetof(perf_event_mmap_page, __reserved);
  control.data_offset = data_offset;
  control.data_size = data_size;
}

int DataRing::attach(perf_event_mmap_page* control, std::byte* data, uint64_t size_bytes,
                     const DataRingMode& mode) {
  if (control == nullptr || data == nullptr) return EINVAL;
  if (!is_power_of_two(size_bytes) || size_bytes < kMinSizeBytes) return EINVAL;
  control_ = control;
  data_ = data;
  size_ = size_bytes;
  // The page may hold anything by now; whatever it is, it is masked before it becomes an address.
  const uint64_t head = __atomic_load_n(&control->data_head, __ATOMIC_RELAXED) & ~uint64_t{7};
  head_.store(head);
  lost_.store(0);
  nest_.store(0);
  mode_ = mode;
  if (mode_.watermark == 0) mode_.watermark = size_bytes / 2;
  if (mode_.watermark > size_bytes) mode_.watermark = size_bytes;
  paused_ = false;
  wakeups_.store(mode.backward ? 0 - head : head);
  wakeup_events_.store(0);
  poll_.store(false);
  return 0;
}

void DataRing::detach() {
  data_ = nullptr;
  control_ = nullptr;
  size_ = 0;
}

bool DataRing::begin(OutputHandle& handle, uint64_t size_bytes, uint64_t lost_record_bytes,
                     uint64_t& lost) {
  if (__builtin_expect(paused_, 0)) {
    lost = 0;
    count_lost(1);
    return false;
  }
  enter();
  const uint64_t wakeups = wakeups_.load();
  // The count is taken before the reservation and given back on failure: an inner writer then never
  // finds a count that an outer one has already promised to report.
  lost = lost_.load();
  if (lost != 0) lost = lost_.exchange(0);
  const uint64_t total = size_bytes + (lost != 0 ? lost_record_bytes : 0);
  uint64_t position = 0;
  if (!reserve(total, position)) {
    count_lost(lost + 1);
    lost = 0;
    leave(wakeups);
    return false;
  }
  handle.ring_ = this;
  handle.position_ = position;
  handle.end_ = position + total;
  handle.wakeups_ = wakeups;
  return true;
}

void DataRing::end(OutputHandle& handle) {
  (void)handle.zero(handle.remaining());
  handle.ring_ = nullptr;
  leave(handle.wakeups_);
}

void DataRing::count_lost(uint64_t records) { lost_.add(records); }

void DataRing::count_wakeup_event(uint32_t wakeup_events) {
  uint64_t events = wakeup_events_.load();
  uint64_t left = 0;
  do {
    left = events + 1 >= wakeup_events ? events + 1 - wakeup_events : events + 1;
  } while (!wakeup_events_.compare_exchange(events, left));
  if (events + 1 >= wakeup_events) wakeups_.add(1);
}

bool DataRing::reserve(uint64_t size_bytes, uint64_t& position) {
  if (__builtin_expect(mode_.overwrite || mode_.backward, 0)) {
    return reserve_otherwise(size_bytes, position);
  }
  uint64_t head = head_.load();
  do {
    // Acquire: our writes must not move before the look at how far the reader is.
    const uint64_t tail = __atomic_load_n(&control_->data_tail, __ATOMIC_ACQUIRE);
    const uint64_t space = (tail - head - 1) & (size_ - 1);
    if (space < size_bytes) return false;
  } while (!head_.compare_exchange(head, head + size_bytes));
  position = head;
  note_distance(head + size_bytes);
  return true;
}

// In overwrite mode there is always room; backward, the head falls.
bool DataRing::reserve_otherwise(uint64_t size_bytes, uint64_t& position) {
  uint64_t head = head_.load();
  uint64_t moved = 0;
  do {
    const uint64_t tail = __atomic_load_n(&control_->data_tail, __ATOMIC_ACQUIRE);
    const uint64_t space = ((mode_.backward ? head - tail : tail - head) - 1) & (size_ - 1);
    if (!mode_.overwrite && space < size_bytes) return false;
    moved = mode_.backward ? head - size_bytes : head + size_bytes;
  } while (!head_.compare_exchange(head, moved));
  position = mode_.backward ? moved : head;
  note_distance(mode_.backward ? 0 - moved : moved);
  return true;
}

void DataRing::note_distance(uint64_t distance) {
  if (distance - wakeups_.load() > mode_.watermark) wakeups_.add(mode_.watermark);
}

// Inner writers leave before the outer one goes on, so plain loads and stores count correctly.
void DataRing::enter() {
  nest_.store(nest_.load() + 1);
  signal_barrier();
}

void DataRing::leave(uint64_t wakeups) {
  signal_barrier();
  const uint32_t nest = nest_.load();
  if (nest > 1) {
    nest_.store(nest - 1);
    return;
  }
  // A writer that comes in between publishing and leaving does not publish (it is not the
  // outermost), so look again after leaving whether the head has moved.
  uint64_t head = 0;
  while (true) {
    head = head_.load();
    __atomic_store_n(&control_->data_head, head, __ATOMIC_RELEASE);
    signal_barrier();
    nest_.store(0);
    signal_barrier();
    if (head == head_.load()) break;
    nest_.store(1);
    signal_barrier();
  }
  if (wakeups != wakeups_.load()) wake();
}

void DataRing::write_at(uint64_t position, const std::byte* bytes, uint64_t size_bytes) {
  uint64_t offset = position & (size_ - 1);
  if (size_bytes == 8 && offset <= size_ - 8) {  // most fields: one store
    __builtin_memcpy(data_ + offset, bytes, 8);
    return;
  }
  if (size_bytes > size_) {  // in overwrite mode only: its end is what stays
    bytes += size_bytes - size_;
    offset = (offset + size_bytes) & (size_ - 1);
    size_bytes = size_;
  }
  const uint64_t first = size_bytes < size_ - offset ? size_bytes : size_ - offset;
  copy_bytes(data_ + offset, bytes, first);
  copy_bytes(data_, bytes + first, size_bytes - first);
}

void DataRing::zero_at(uint64_t position, uint64_t size_bytes) {
  uint64_t offset = position & (size_ - 1);
  if (size_bytes > size_) {
    offset = (offset + size_bytes) & (size_ - 1);
    size_bytes = size_;
  }
  const uint64_t first = size_bytes < size_ - offset ? size_bytes : size_ - offset;
  clear_bytes(data_ + offset, first);
  clear_bytes(data_, size_bytes - first);
}

}  // namespace auxtrail::event
