#include "event/aux_area.h"

#include <cerrno>

#include "event/inline_copy.h"

namespace auxtrail::event {

void AuxArea::init_control_page(perf_event_mmap_page& control, uint64_t aux_offset,
                                uint64_t aux_size) {
  control.aux_head = 0;
  control.aux_tail = 0;
  control.aux_offset = aux_offset;
  control.aux_size = aux_size;
}

int AuxArea::attach(perf_event_mmap_page* control, std::byte* bytes, uint64_t size_bytes,
                    const AuxMode& mode) {
  if (bytes == nullptr || size_bytes < 8 || (size_bytes & (size_bytes - 1)) != 0) return EINVAL;
  control_ = control;
  bytes_ = bytes;
  size_ = size_bytes;
  written_.store(0);
  in_sampling_.store(false);
  in_pause_resume_.store(false);
  mode_ = mode;
  if (mode.overwrite) {
    mode_.watermark = 0;
  } else if (mode.watermark == 0) {
    mode_.watermark = size_bytes / 2 < UINT32_MAX ? size_bytes / 2 : UINT32_MAX;
  }
  refuses_ = false;
  nest_ = 0;
  wakeup_ = 0;
  publish();
  return 0;
}

void AuxArea::detach() {
  bytes_ = nullptr;
  control_ = nullptr;
  size_ = 0;
}

std::byte* AuxArea::claim(uint64_t size_bytes) {
  const uint64_t left = size_ - head();
  if (left < size_bytes && !mode_.mirrored) {
    clear_bytes(bytes_ + head(), left);
    commit(left);
  }
  return bytes_ + head();
}

void AuxArea::commit(uint64_t size_bytes) {
  written_.store(written() + size_bytes);
  publish();
}

void AuxArea::write(const void* bytes, uint64_t size_bytes) {
  place(written(), bytes, size_bytes);
  commit(size_bytes);
}

void AuxArea::place(uint64_t position, const void* bytes, uint64_t size_bytes) {
  const uint64_t keep = size_bytes < size_ ? size_bytes : size_;
  const auto* from = static_cast<const std::byte*>(bytes) + (size_bytes - keep);
  const uint64_t offset = (position + size_bytes - keep) & (size_ - 1);
  const uint64_t first = keep < size_ - offset ? keep : size_ - offset;
  copy_bytes(bytes_ + offset, from, first);
  copy_bytes(bytes_, from + first, keep - first);
}

void AuxArea::move_head(uint64_t offset, bool lapped) {
  uint64_t written = this->written();
  uint64_t moved = 0;
  do {
    moved = written + ((offset - written) & (size_ - 1)) + (lapped ? size_ : 0);
  } while (!written_.compare_exchange(written, moved));
}

int64_t AuxArea::copy_out(OutputHandle& handle, uint64_t from, uint64_t to) const {
  from &= size_ - 1;
  to &= size_ - 1;
  const uint64_t first = to > from ? to - from : size_ - from;
  const uint64_t second = to > from ? 0 : to;
  if (handle.copy(bytes_ + from, first) != 0) return -EFAULT;
  if (handle.copy(bytes_, second) != 0) return -EFAULT;
  return static_cast<int64_t>(first + second);
}

int64_t AuxArea::copy_newest(OutputHandle& handle, uint64_t size_bytes) const {
  const uint64_t written = this->written();
  const uint64_t wanted = size_bytes < size_ ? size_bytes : size_;
  const uint64_t real = wanted < written ? wanted : written;
  if (handle.zero(wanted - real) != 0) return -EFAULT;
  if (real != 0 && copy_out(handle, written - real, written) < 0) return -EFAULT;
  return static_cast<int64_t>(wanted);
}

void AuxArea::publish() {
  if (control_ == nullptr) return;
  const uint64_t position = mode_.overwrite ? head() : written();
  __atomic_store_n(&control_->aux_head, position, __ATOMIC_RELEASE);
}

}  // namespace auxtrail::event
