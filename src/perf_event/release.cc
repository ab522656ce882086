// The end of events: close(2) of the last descriptor and mapping, exit of the task, references.
// Checklist A12.
#include <cerrno>

#include "event/group.h"
#include "perf_event/kernel.h"

namespace auxtrail::perf_event {

using event::EventState;

long Kernel::close(Tid caller, int fd) {
  const Call call(*this);
  Process& process = task_of(caller).process;
  File* const file = file_of(process, fd);
  if (file == nullptr) return -EBADF;
  process.descriptors[static_cast<size_t>(fd)] = nullptr;
  put_file(*file);
  run_pending();
  return 0;
}

void Kernel::put_file(File& file) {
  if (--file.references != 0) return;
  PerfEvent& event = *file.event;
  files_.erase(&file);
  release(event);
}

// The order is the kernel's: first the event is dead, so that nobody inherits it any more, then its
// children go, then its own reference.
void Kernel::release(PerfEvent& event) {
  if (event.context != nullptr) event.context->remove(event);
  event.state = EventState::kDead;
  if (PerfEvent& leader = group_leader_of(event); leader.context != nullptr) {
    leader.context->leave_group(event);
  } else {
    Context detached(now_ns_);
    detached.leave_group(event);
  }
  while (!event.children.empty()) {
    PerfEvent& child = *event.children.front();
    remove_child(child);
    put(child);
  }
  put(event);
}

// A child goes with its task or with its parent; what it counted stays with the parent only in the
// first case, and the caller has seen to that.
void Kernel::remove_child(PerfEvent& child) {
  std::erase(parent_of(child)->children, &child);
  if (child.context != nullptr) child.context->remove(child);
  child.state = EventState::kDead;
  Context detached(now_ns_);
  detached.leave_group(child);
}

void Kernel::put(PerfEvent& event) {
  event::drop_reference(event);
  if (event.refcount.load() != 0) return;
  attach_buffer(event, nullptr);
  if (event.pmu != nullptr && event.registration != nullptr) pmus_.uncount_exclusive(event);
  PerfEvent* const parent = parent_of(event);
  const auto found = events_.find(&event);
  released_.push_back(std::move(found->second));
  events_.erase(found);
  if (parent != nullptr) put(*parent);
}

void Kernel::exit_event(PerfEvent& event) {
  PerfEvent* const parent = parent_of(event);
  if (parent != nullptr) {
    event.context->update(event);
    parent->child_count += event.count;
    parent->child_time_enabled += event.time_enabled;
    parent->child_time_running += event.time_running;
    remove_child(event);
    return put(event);
  }
  event.context->remove(event);
  if (event.state > EventState::kExit) event.state = EventState::kExit;
}

void Kernel::exit(Tid tid) {
  const Call call(*this);
  Task& task = task_of(tid);
  if (task.exited) return;
  stop_running(tid);
  task.exited = true;
  while (!task.context.events().empty()) exit_event(*task.context.events().front());
  Process& process = task.process;
  if (--process.threads != 0) return;
  while (!process.mappings.empty()) {
    const MappedArea area = std::move(process.mappings.back());
    process.mappings.pop_back();
    unmap(area);
  }
  for (File*& file : process.descriptors) {
    if (file != nullptr) put_file(*std::exchange(file, nullptr));
  }
  run_pending();
}

void Kernel::reap(Tid tid) {
  const Call call(*this);
  exit(tid);
  Process& process = task_of(tid).process;
  tasks_.erase(tid);
  for (const auto& [other, task] : tasks_) {
    if (&task->process == &process) return;
  }
  processes_.erase(process.pid);
}

}  // namespace auxtrail::perf_event
