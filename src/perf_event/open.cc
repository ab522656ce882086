// perf_event_open(2): its checks in the kernel's order, which decides what a caller with several
// faults is told. Checklist A.
#include <sys/types.h>
#include <time.h>

#include <cerrno>
#include <cstring>

#include "event/group.h"
#include "perf_event/kernel.h"
#include "perf_event/software_pmu.h"

namespace auxtrail::perf_event {

using event::EventState;

struct Kernel::OpenRequest {
  const event::Attr& attr;
  Process& process;
  int pid;
  int cpu;
  int group_fd;
  uint64_t flags;

  PerfEvent* leader = nullptr;
  PerfEvent* output = nullptr;
  Task* task = nullptr;

  [[nodiscard]] bool has(uint64_t flag) const { return (flags & flag) != 0; }
  [[nodiscard]] uint32_t tid() const { return task != nullptr ? task->tid : 0; }
};

namespace {

// Clocks other than these two cannot be read in an NMI.
int check_clock(const event::Event& event) {
  if (event.attr.use_clockid == 0) return 0;
  switch (event.attr.clockid) {
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
      return 0;
    case CLOCK_REALTIME:
    case CLOCK_BOOTTIME:
    case CLOCK_TAI:
      return (event.pmu->capabilities & event::kPmuCapNoNmi) != 0 ? 0 : EINVAL;
    default:
      return EINVAL;
  }
}

// Two events of an exclusive PMU cannot be on at the same time.
bool is_installable(const PerfEvent& event, const Context& context) {
  if ((event.pmu->capabilities & event::kPmuCapExclusive) == 0) return true;
  for (const PerfEvent* const other : context.events()) {
    const bool meets = other->cpu == event.cpu || other->cpu == -1 || event.cpu == -1;
    if (other->pmu == event.pmu && meets) return false;
  }
  return true;
}

}  // namespace

long Kernel::perf_event_open(Tid caller, void* attr, int pid, int cpu, int group_fd,
                             uint64_t flags) {
  const Call call(*this);
  Process& process = task_of(caller).process;
  if (const int error = event::check_open_flags(flags); error != 0) return -error;
  const event::AttrPolicy policy = policy_of(*process.user);
  const event::AttrCopy copy = event::copy_attr(static_cast<const std::byte*>(attr), policy);
  if (copy.size_back != 0) {
    std::memcpy(static_cast<std::byte*>(attr) + offsetof(perf_event_attr, size), &copy.size_back,
                sizeof copy.size_back);
  }
  if (copy.error != 0) return -copy.error;
  if (const int error = event::check_rights_and_rate(copy.attr, policy); error != 0) return -error;
  if (const int error = event::check_cgroup_target(flags, pid, cpu); error != 0) return -error;

  const int fd = free_descriptor(process);
  if (fd < 0) return fd;
  OpenRequest request{copy.attr, process,  pid == 0 ? static_cast<int>(caller) : pid,
                      cpu,       group_fd, flags};
  if (const int error = resolve_group(request); error != 0) return -error;
  if (const int error = resolve_task(request); error != 0) return -error;

  PerfEvent& event = add_event();
  int error = allocate(event, request);
  if (error == 0) error = check_event(event, request);
  if (error != 0) {
    event::put_aux_event(event);
    put(event);
    return -error;
  }
  if (request.leader != nullptr) event::join_group(*request.leader, event);
  Context& context = request.task != nullptr ? request.task->context
                                             : cpus_[static_cast<size_t>(event.cpu)]->context;
  context.install(event);
  auto file = std::make_unique<File>(File{&event, 1});
  process.descriptors[static_cast<size_t>(fd)] = file.get();
  files_[file.get()] = std::move(file);
  run_pending();
  return fd;
}

int Kernel::resolve_group(OpenRequest& request) const {
  if (request.group_fd == -1) return 0;
  const File* const file = file_of(request.process, request.group_fd);
  if (file == nullptr) return EBADF;
  PerfEvent& leader = *file->event;
  if (leader.state <= EventState::kExit) return ENODEV;
  if (request.has(PERF_FLAG_FD_OUTPUT)) request.output = &leader;
  if (!request.has(PERF_FLAG_FD_NO_GROUP)) request.leader = &leader;
  return 0;
}

int Kernel::resolve_task(OpenRequest& request) {
  if (request.pid == -1 || request.has(PERF_FLAG_PID_CGROUP)) return 0;
  request.task = request.pid >= 0 ? find_task(static_cast<Tid>(request.pid)) : nullptr;
  if (request.task == nullptr) return ESRCH;
  if (request.leader == nullptr) return 0;
  return event::check_leader(*request.leader, request.attr.v7, request.tid());
}

PerfEvent& Kernel::add_event() {
  auto event = std::make_unique<PerfEvent>();
  PerfEvent& added = *event;
  events_[&added] = std::move(event);
  return added;
}

// Whatever fails, the event has a reference that put() drops.
int Kernel::allocate(PerfEvent& event, const OpenRequest& request) {
  const perf_event_attr& attr = request.attr.v7;
  event.refcount.store(1);
  const bool is_cpu = request.cpu >= 0 && static_cast<uint32_t>(request.cpu) < settings_.cpus;
  if (!is_cpu && (request.task == nullptr || request.cpu != -1)) return EINVAL;
  if (attr.sigtrap != 0 && request.task == nullptr) return EINVAL;
  const bool reads = (attr.sample_type & PERF_SAMPLE_READ) != 0;
  const bool tells_thread = (attr.sample_type & PERF_SAMPLE_TID) != 0;
  if (attr.inherit != 0 && reads && !tells_thread) return EINVAL;
  const int error = pmus_.init(event, attr, next_id_++, request.tid(), request.cpu);
  event.refcount.store(1);
  if (error != 0) return error;
  event.task = request.tid();
  event.cpu = request.cpu;
  if (attr.type == PERF_TYPE_BREAKPOINT) {
    if (const int full = breakpoint_slot(event.task, event.cpu); full != 0) return full;
  }
  if (const int fault = event::check_aux_attr(attr, *event.pmu); fault != 0) return fault;
  if (request.has(PERF_FLAG_PID_CGROUP)) return EBADF;  // there are no control groups here
  if (const int busy = pmus_.count_exclusive(event); busy != 0) return busy;
  const bool too_deep = (attr.sample_type & PERF_SAMPLE_CALLCHAIN) != 0 &&
                        attr.sample_max_stack > settings_.max_stack_frames;
  return too_deep ? EOVERFLOW : 0;
}

// A task's watchpoints and those of all CPUs that it may run on have to be on at the same time.
int Kernel::breakpoint_slot(uint32_t tid, int cpu) const {
  int used = 0;
  for (const auto& [event, owner] : events_) {
    if (event->pmu != &kBreakpoints || event->context == nullptr) continue;
    const bool may_meet = event->task == 0 || tid == 0 || event->task == tid;
    if (may_meet && (event->cpu == -1 || cpu == -1 || event->cpu == cpu)) ++used;
  }
  return used < kBreakpointSlots ? 0 : ENOSPC;
}

int Kernel::check_event(PerfEvent& event, const OpenRequest& request) {
  if (is_sampling(event) && (event.pmu->capabilities & event::kPmuCapNoInterrupt) != 0) {
    return EOPNOTSUPP;
  }
  if (const int error = check_clock(event); error != 0) return error;
  if (const int error = check_place(request); error != 0) return error;
  if (request.leader != nullptr) {
    if (const int error = event::check_group(*request.leader, event); error != 0) return error;
  }
  if (request.output != nullptr) {
    if (const int error = set_output(event, request.output); error != 0) return error;
  }
  const PerfEvent& group = request.leader != nullptr ? *request.leader : event;
  if (const int error = event::check_read_size(group, event); error != 0) return error;
  if (event::need_aux_event(event)) {
    const event::AuxLink link = event::get_aux_event(event, request.leader);
    if (link != event::AuxLink::kOk) return to_errno(link);
  }
  const Context& context = request.task != nullptr ? request.task->context
                                                   : cpus_[static_cast<size_t>(event.cpu)]->context;
  return is_installable(event, context) ? 0 : EBUSY;
}

// May the caller watch there, and is there still somebody to watch?
int Kernel::check_place(const OpenRequest& request) const {
  const User& user = *request.process.user;
  if (request.task == nullptr) {
    return settings_.paranoid > 0 && !user.is_perfmon ? EACCES : 0;
  }
  const bool own = request.task->process.user->uid == user.uid;
  if (!own && !user.is_perfmon && !user.may_trace) return EACCES;
  return request.task->exited ? ESRCH : 0;
}

}  // namespace auxtrail::perf_event
