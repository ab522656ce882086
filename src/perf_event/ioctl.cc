// ioctl(2) of perf events.
#include <linux/perf_event.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>

#include "perf_event/kernel.h"

namespace auxtrail::perf_event {
namespace {

// Calls visit for the event and what is inherited from it.
template <class Visit>
void for_each_child(PerfEvent& event, Visit&& visit) {
  visit(event);
  for (PerfEvent* const child : event.children) visit(*child);
}

// And with PERF_IOC_FLAG_GROUP, for the whole group of it.
template <class Visit>
void for_each_event(PerfEvent& event, uint64_t flags, Visit&& visit) {
  if ((flags & PERF_IOC_FLAG_GROUP) == 0) return for_each_child(event, visit);
  PerfEvent& leader = group_leader_of(event);
  for_each_child(leader, visit);
  for_each_sibling(leader, [&visit](PerfEvent& sibling) { for_each_child(sibling, visit); });
}

void enable(PerfEvent& event) {
  if (event.context != nullptr) event.context->enable(event);
}
void disable(PerfEvent& event) {
  if (event.context != nullptr) event.context->disable(event);
}
void reset(PerfEvent& event) {
  if (event.context != nullptr) event.context->update(event);
  event.count = 0;
}

// False for a null pointer, the one bad address that can be told here.
template <class T>
bool copy_from_user(T& value, uint64_t address) {
  if (address == 0) return false;
  std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
  return true;
}

long pause_output(const PerfEvent& event, bool pause) {
  if (event.buffer == nullptr || event.buffer->data_pages() == 0) return -EINVAL;
  event.buffer->ring().set_paused(pause);
  return 0;
}

long give_id(const PerfEvent& event, uint64_t address) {
  if (address == 0) return -EFAULT;
  const uint64_t id = event::primary_event_id(event);
  std::memcpy(reinterpret_cast<void*>(address), &id, sizeof id);
  return 0;
}

// Only watchpoints can be changed, and those not here.
long modify(const PerfEvent& event, uint64_t address, const event::AttrPolicy& policy) {
  if (address == 0) return -EFAULT;
  const event::AttrCopy copy = event::copy_attr(reinterpret_cast<std::byte*>(address), policy);
  if (copy.error != 0) return -copy.error;
  return copy.attr.v7.type == event.attr.type ? -EOPNOTSUPP : -EINVAL;
}

}  // namespace

long Kernel::ioctl(Tid caller, int fd, uint64_t request, uint64_t argument) {
  const Call call(*this);
  const Process& process = task_of(caller).process;
  File* const file = file_of(process, fd);
  if (file == nullptr) return -EBADF;
  PerfEvent& event = *file->event;
  long result = 0;
  switch (request) {
    case PERF_EVENT_IOC_ENABLE:
      for_each_event(event, argument, enable);
      break;
    case PERF_EVENT_IOC_DISABLE:
      for_each_event(event, argument, disable);
      break;
    case PERF_EVENT_IOC_RESET:
      for_each_event(event, argument, reset);
      break;
    case PERF_EVENT_IOC_REFRESH:
      result = refresh(event, static_cast<int32_t>(argument));
      break;
    case PERF_EVENT_IOC_PERIOD: {
      uint64_t period = 0;
      if (!copy_from_user(period, argument)) return -EFAULT;
      result = set_period(event, period);
      break;
    }
    case PERF_EVENT_IOC_ID:
      return give_id(event, argument);
    case PERF_EVENT_IOC_SET_OUTPUT: {
      const bool nowhere = static_cast<int>(argument) == -1;
      const File* const output = file_of(process, static_cast<int>(argument));
      if (!nowhere && output == nullptr) return -EBADF;
      result = -set_output(event, nowhere ? nullptr : output->event);
      break;
    }
    case PERF_EVENT_IOC_SET_FILTER:
      result = set_filter(event, argument);
      break;
    case PERF_EVENT_IOC_SET_BPF:
      return -EBADF;  // there are no BPF programs
    case PERF_EVENT_IOC_PAUSE_OUTPUT:
      return pause_output(event, argument != 0);
    case PERF_EVENT_IOC_MODIFY_ATTRIBUTES:
      return modify(event, argument, policy_of(*process.user));
    case PERF_EVENT_IOC_QUERY_BPF:
      return process.user->is_perfmon ? -EINVAL : -EPERM;  // it is about tracepoints
    default:
      return -ENOTTY;
  }
  run_pending();
  return result;
}

// `overflows` more until the event disables itself.
long Kernel::refresh(PerfEvent& event, int64_t overflows) {
  if (event.attr.inherit != 0 || !is_sampling(event)) return -EINVAL;
  event.event_limit.add(overflows);
  enable(event);
  return 0;
}

long Kernel::set_period(PerfEvent& event, uint64_t period) {
  if (!is_sampling(event) || period == 0) return -EINVAL;
  if (event.attr.freq != 0) {
    if (period > settings_.max_sample_rate_hz) return -EINVAL;
    event.attr.sample_freq = period;
  } else {
    if (period >> 63 != 0) return -EINVAL;
    event.attr.sample_period = event.hw.sample_period = period;
  }
  const bool active = event.state == event::EventState::kActive;
  if (active && event.pmu->stop != nullptr) event.pmu->stop(event, event::kEfUpdate);
  event.hw.period_left = 0;
  if (active && event.pmu->start != nullptr) event.pmu->start(event, event::kEfReload);
  return 0;
}

}  // namespace auxtrail::perf_event
