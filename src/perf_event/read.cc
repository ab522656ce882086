// read(2) and poll(2) of perf events. Checklist D7.
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "event/group.h"
#include "event/read_format.h"
#include "perf_event/kernel.h"

namespace auxtrail::perf_event {

using event::EventState;

namespace {

// The counts of an event with all that was inherited from it, in the place of its own while read(2)
// lays them out.
class Totals {
 public:
  explicit Totals(PerfEvent& event)
      : event_(event),
        count_(event.count),
        enabled_(event.time_enabled),
        running_(event.time_running) {
    event.count += event.child_count;
    event.time_enabled += event.child_time_enabled;
    event.time_running += event.child_time_running;
    for (PerfEvent* const child : event.children) {
      if (child->context != nullptr) child->context->update(*child);
      event.count += child->count;
      event.time_enabled += child->time_enabled;
      event.time_running += child->time_running;
    }
  }
  ~Totals() {
    event_.count = count_;
    event_.time_enabled = enabled_;
    event_.time_running = running_;
  }
  Totals(const Totals&) = delete;
  Totals& operator=(const Totals&) = delete;

 private:
  PerfEvent& event_;
  uint64_t count_;
  uint64_t enabled_;
  uint64_t running_;
};

void update(PerfEvent& event) {
  if (event.context != nullptr) event.context->update(event);
}

}  // namespace

long Kernel::read(Tid caller, int fd, void* to, uint64_t size_bytes) {
  const Call call(*this);
  const File* const file = file_of(task_of(caller).process, fd);
  if (file == nullptr) return -EBADF;
  PerfEvent& event = *file->event;
  if (event.state == EventState::kError) return 0;
  PerfEvent& leader = group_leader_of(event);
  const uint64_t bytes = event::read_bytes(event.attr.read_format, leader.sibling_count);
  if (size_bytes < bytes) return -ENOSPC;
  std::vector<std::unique_ptr<Totals>> totals;
  const auto add = [&totals](PerfEvent& member) {
    update(member);
    totals.push_back(std::make_unique<Totals>(member));
  };
  const bool is_group = (event.attr.read_format & PERF_FORMAT_GROUP) != 0;
  if (is_group) {
    add(leader);
    for_each_sibling(leader, add);
  } else {
    add(event);
  }
  auto* words = static_cast<std::byte*>(to);
  event::for_each_read_word(event, is_group ? leader : event, [&words](uint64_t word) {
    std::memcpy(words, &word, sizeof word);
    words += sizeof word;
  });
  return static_cast<long>(bytes);
}

short Kernel::poll(Tid caller, int fd) {
  const Call call(*this);
  const File* const file = file_of(task_of(caller).process, fd);
  if (file == nullptr) return POLLNVAL;
  const PerfEvent& event = *file->event;
  if (event.state <= EventState::kExit && event.children.empty()) return POLLHUP;
  if (event.state == EventState::kError && event.attr.pinned != 0) return POLLERR;
  if (event.buffer == nullptr) return POLLHUP;
  return event.buffer->ring().take_poll() ? POLLIN : short{0};
}

}  // namespace auxtrail::perf_event
