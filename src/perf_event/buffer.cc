#include "perf_event/buffer.h"

#include <sys/mman.h>

#include <algorithm>

namespace auxtrail::perf_event {
namespace {

Mapping map_file(const UniqueFd& file, uint64_t bytes, int protection) {
  void* const address = ::mmap(nullptr, bytes, protection, MAP_SHARED, file.get(), 0);
  return address != MAP_FAILED ? Mapping(address, bytes) : Mapping();
}

// Memory that costs nothing where it is not touched.
bool make_memory(uint64_t bytes, UniqueFd& file, Mapping& memory) {
  file = UniqueFd(memfd_create("perf_event", MFD_CLOEXEC));
  if (!file || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return false;
  memory = map_file(file, bytes, PROT_READ | PROT_WRITE);
  return static_cast<bool>(memory);
}

}  // namespace

std::shared_ptr<Buffer> Buffer::create(uint64_t data_pages, const event::DataRingMode& mode) {
  std::shared_ptr<Buffer> buffer(new Buffer);
  const uint64_t data_bytes = data_pages * kPageBytes;
  if (!make_memory(kPageBytes + data_bytes, buffer->file_, buffer->memory_)) return nullptr;
  event::DataRing::init_control_page(buffer->control(), kPageBytes, data_bytes);
  if (data_pages == 0) return buffer;
  const int error = buffer->ring_.attach(&buffer->control(), buffer->memory_.data() + kPageBytes,
                                         data_bytes, mode);
  return error == 0 ? buffer : nullptr;
}

bool Buffer::add_aux(uint64_t page_offset, uint64_t pages, const event::AuxMode& mode) {
  const uint64_t bytes = pages * kPageBytes;
  if (!make_memory(bytes, aux_file_, aux_memory_) ||
      aux_.attach(&control(), aux_memory_.data(), bytes, mode) != 0) {
    drop_aux();
    return false;
  }
  aux_pages_ = pages;
  aux_page_offset_ = page_offset;
  for (PerfEvent* const event : events_) event->aux = &aux_;
  return true;
}

void Buffer::drop_aux() {
  for (PerfEvent* const event : events_) event->aux = nullptr;
  aux_.detach();
  aux_memory_.reset();
  aux_file_.reset();
  aux_pages_ = 0;
  aux_page_offset_ = 0;
}

Mapping Buffer::map(uint64_t page_offset, uint64_t pages, bool readable, bool writable) const {
  const int read = readable || writable ? PROT_READ : PROT_NONE;
  const uint64_t bytes = pages * kPageBytes;
  if (page_offset != 0) return map_file(aux_file_, bytes, read);
  Mapping mapping = map_file(file_, bytes, read);
  if (mapping && writable) ::mprotect(mapping.data(), kPageBytes, PROT_READ | PROT_WRITE);
  return mapping;
}

void Buffer::attach(PerfEvent& event) {
  events_.push_back(&event);
  event.ring = &ring_;
  event.aux = has_aux() ? &aux_ : nullptr;
}

void Buffer::detach(PerfEvent& event) {
  std::erase(events_, &event);
  event.ring = nullptr;
  event.aux = nullptr;
}

}  // namespace auxtrail::perf_event
