// mmap(2) and munmap(2) of perf events: the data area at offset 0, the AUX area where the control
// page says. Checklist B.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "perf_event/kernel.h"

namespace auxtrail::perf_event {
namespace {

constexpr uint64_t kAddressSpaceBytes = uint64_t{1} << 47;

bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

uint64_t to_pages(uint64_t bytes) { return bytes / kPageBytes + (bytes % kPageBytes != 0 ? 1 : 0); }

// What mmap(2) looks at before it asks the file. 0 or an errno.
int check_request(uint64_t length, int flags, uint64_t offset) {
  if (length == 0) return EINVAL;
  if (length > kAddressSpaceBytes) return ENOMEM;
  if (offset / kPageBytes + to_pages(length) > UINT64_MAX / kPageBytes) return EOVERFLOW;
  const int type = flags & MAP_TYPE;
  return type == MAP_SHARED || type == MAP_SHARED_VALIDATE || type == MAP_PRIVATE ? 0 : EINVAL;
}

bool is_sampled(const Buffer& buffer) {
  return std::any_of(buffer.events().begin(), buffer.events().end(),
                     [](const PerfEvent* event) { return is_sampled(*event); });
}

}  // namespace

long Kernel::mmap(Tid caller, uint64_t length, int protection, int flags, int fd, uint64_t offset) {
  const Call call(*this);
  if (offset % kPageBytes != 0) return -EINVAL;
  Process& process = task_of(caller).process;
  File* const file = file_of(process, fd);
  if (file == nullptr) return -EBADF;
  if (const int error = check_request(length, flags, offset); error != 0) return -error;
  if ((protection & PROT_EXEC) != 0) return -EPERM;  // as on any file system mounted noexec

  PerfEvent& event = *file->event;
  // All children would write into the one area, from different CPUs.
  if (event.cpu == -1 && event.attr.inherit != 0) return -EINVAL;
  if ((flags & MAP_TYPE) == MAP_PRIVATE) return -EINVAL;
  const uint64_t pages = to_pages(length);
  if (pages > INT_MAX) return -ENOMEM;
  const bool writable = (protection & PROT_WRITE) != 0;
  const uint64_t page_offset = offset / kPageBytes;
  const int error = page_offset == 0 ? map_data(event, process, pages, writable)
                                     : map_aux(event, process, page_offset, pages, writable);
  if (error != 0) return -error;
  MappedArea area{event.buffer->map(page_offset, pages, (protection & PROT_READ) != 0, writable),
                  page_offset, file};
  ++file->references;
  if (!area.memory) {
    unmap(area);
    return -ENOMEM;
  }
  const auto address = reinterpret_cast<long>(area.memory.data());
  process.mappings.push_back(std::move(area));
  run_pending();
  return address;
}

int Kernel::map_data(PerfEvent& event, Process& process, uint64_t pages, bool writable) {
  const uint64_t data_pages = pages - 1;
  if (data_pages != 0 && !is_power_of_two(data_pages)) return EINVAL;
  if (event.buffer != nullptr) {
    if (event.buffer->data_pages() != data_pages) return EINVAL;
    if (event.mmap_count == 0) return EBUSY;  // it is another event's, with that one's control page
    ++event.buffer->mmap_count;
    ++event.mmap_count;
    return 0;
  }
  LockedPages locked;
  if (!lock_pages(process, pages, locked)) return EPERM;
  if (data_pages > settings_.max_data_pages) return ENOMEM;
  const perf_event_attr& attr = event.attr;
  auto buffer =
      Buffer::create(data_pages, {.overwrite = !writable,
                                  .backward = attr.write_backward != 0,
                                  .watermark = attr.watermark != 0 ? attr.wakeup_watermark : 0});
  if (buffer == nullptr) return ENOMEM;
  buffer->user = process.user;
  buffer->process = &process;
  buffer->locked = locked;
  process.user->locked_pages += locked.of_user;
  process.pinned_pages += locked.of_process;
  buffer->mmap_count = event.mmap_count = 1;
  attach_buffer(event, std::move(buffer));
  return 0;
}

int Kernel::map_aux(PerfEvent& event, Process& process, uint64_t page_offset, uint64_t pages,
                    bool writable) {
  if (event.buffer == nullptr) return EINVAL;
  Buffer& buffer = *event.buffer;
  // The reader's page is not trusted: each value is looked at once.
  const uint64_t aux_offset = __atomic_load_n(&buffer.control().aux_offset, __ATOMIC_RELAXED);
  const uint64_t aux_size = __atomic_load_n(&buffer.control().aux_size, __ATOMIC_RELAXED);
  if (aux_offset < (buffer.data_pages() + 1) * kPageBytes) return EINVAL;
  if (aux_offset != page_offset * kPageBytes) return EINVAL;
  if (buffer.has_aux() && buffer.aux_page_offset() != page_offset) return EINVAL;
  if (aux_size != pages * kPageBytes) return EINVAL;
  if (buffer.has_aux() && buffer.aux_pages() != pages) return EINVAL;
  if (!is_power_of_two(pages)) return EINVAL;
  if (!buffer.has_aux()) {
    LockedPages locked;
    if (!lock_pages(process, pages, locked)) return EPERM;
    if (const int error = set_up_aux(event, page_offset, pages, writable); error != 0) return error;
    buffer.aux_locked = locked;
    process.user->locked_pages += locked.of_user;
    process.pinned_pages += locked.of_process;
  }
  ++buffer.aux_mmap_count;
  ++buffer.mmap_count;
  ++event.mmap_count;
  return 0;
}

int Kernel::set_up_aux(PerfEvent& event, uint64_t page_offset, uint64_t pages, bool writable) {
  Buffer& buffer = *event.buffer;
  if (!has_aux(event)) return EOPNOTSUPP;
  if (pages > settings_.max_aux_pages) return ENOMEM;
  if (writable && is_sampled(buffer)) return EINVAL;
  if (!buffer.add_aux(page_offset, pages,
                      {.overwrite = !writable, .watermark = event.attr.aux_watermark})) {
    return ENOMEM;
  }
  const int error = event.pmu->setup_aux(event, buffer.aux(), !writable);
  if (error != 0) buffer.drop_aux();
  return error;
}

long Kernel::munmap(Tid caller, const void* address, uint64_t length) {
  const Call call(*this);
  const auto begin = reinterpret_cast<uint64_t>(address);
  if (begin % kPageBytes != 0 || length == 0) return -EINVAL;
  const uint64_t end = begin + to_pages(length) * kPageBytes;
  std::vector<MappedArea>& mappings = task_of(caller).process.mappings;
  const auto begin_of = [](const MappedArea& area) {
    return reinterpret_cast<uint64_t>(area.memory.data());
  };
  const auto is_hit = [&](const MappedArea& area) {
    return begin_of(area) < end && begin_of(area) + area.memory.size_bytes() > begin;
  };
  // A buffer is mapped whole or not at all.
  for (const MappedArea& area : mappings) {
    const bool whole = begin_of(area) >= begin && begin_of(area) + area.memory.size_bytes() <= end;
    if (is_hit(area) && !whole) return -EINVAL;
  }
  while (true) {
    const auto hit = std::find_if(mappings.begin(), mappings.end(), is_hit);
    if (hit == mappings.end()) break;
    const MappedArea area = std::move(*hit);
    mappings.erase(hit);
    unmap(area);
  }
  run_pending();
  return 0;
}

long Kernel::mremap(Tid caller, const void* address, uint64_t old_length, uint64_t new_length) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  if (begin % kPageBytes != 0 || to_pages(new_length) == 0) return -EINVAL;
  for (const MappedArea& area : task_of(caller).process.mappings) {
    if (area.memory.data() != address) continue;
    const uint64_t pages = area.memory.size_bytes() / kPageBytes;
    if (to_pages(new_length) > to_pages(old_length)) return -EFAULT;  // it cannot grow
    if (to_pages(old_length) == pages && to_pages(new_length) == pages)
      return static_cast<long>(begin);
    return -EINVAL;
  }
  return -EFAULT;
}

void Kernel::unmap(const MappedArea& area) {
  PerfEvent& event = *area.file->event;
  const std::shared_ptr<Buffer> buffer = event.buffer;
  const bool is_aux = buffer->has_aux() && area.page_offset == buffer->aux_page_offset();
  if (is_aux && --buffer->aux_mmap_count == 0) tear_down_aux(event, *buffer);
  const bool is_last = --buffer->mmap_count == 0;
  if (--event.mmap_count == 0) attach_buffer(event, nullptr);
  if (is_last) {
    while (!buffer->events().empty()) attach_buffer(*buffer->events().front(), nullptr);
    unlock_pages(*buffer, buffer->locked);
  }
  put_file(*area.file);
}

// Stops all that write there, the inherited ones too, before the memory goes (B6). They do not
// start again: the area takes no more transactions.
void Kernel::tear_down_aux(PerfEvent& event, Buffer& buffer) {
  buffer.aux().refuse_transactions();
  const auto stop = [](PerfEvent& writer) {
    if (has_aux(writer) && writer.state == event::EventState::kActive) {
      writer.pmu->stop(writer, event::kEfUpdate);
    }
  };
  for (PerfEvent* const writer : buffer.events()) {
    stop(*writer);
    for (PerfEvent* const child : writer->children) stop(*child);
  }
  if (event.pmu->free_aux != nullptr) event.pmu->free_aux(event);
  buffer.drop_aux();
  unlock_pages(buffer, buffer.aux_locked);
}

bool Kernel::lock_pages(Process& process, uint64_t pages, LockedPages& locked) const {
  const uint64_t limit = settings_.mlock_kib / (kPageBytes / 1024) * settings_.cpus;
  const uint64_t used = std::min(process.user->locked_pages, limit);
  locked.of_user = std::min(pages, limit - used);
  locked.of_process = pages - locked.of_user;
  const bool fits =
      process.pinned_pages + locked.of_process <= settings_.memlock_bytes / kPageBytes;
  return fits || settings_.paranoid < 0 || process.user->may_lock;
}

void Kernel::unlock_pages(Buffer& buffer, LockedPages& locked) {
  buffer.user->locked_pages -= locked.of_user;
  buffer.process->pinned_pages -= locked.of_process;
  locked = {};
}

void Kernel::attach_buffer(PerfEvent& event, std::shared_ptr<Buffer> buffer) {
  // The unit must not go on writing into the area that the event leaves.
  const bool is_on = event.state == event::EventState::kActive;
  if (is_on && has_aux(event)) event.pmu->stop(event, event::kEfUpdate);
  if (event.buffer != nullptr) event.buffer->detach(event);
  event.buffer = std::move(buffer);
  if (event.buffer != nullptr) event.buffer->attach(event);
}

}  // namespace auxtrail::perf_event
