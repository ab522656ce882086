// PERF_EVENT_IOC_SET_FILTER: address filters of PMUs that trace instructions.
//
// Filters belong to the event that was opened; those inherited from it use the same. They act when
// an event is started, so events that are on are stopped and started again.
#include <cerrno>
#include <cstring>

#include "perf_event/kernel.h"

namespace auxtrail::perf_event {
namespace {

void restart(PerfEvent& event) {
  if (event.state != event::EventState::kActive || event.hw.stopped) return;
  event.pmu->stop(event, event::kEfUpdate);
  event.pmu->start(event, 0);
}

void apply(PerfEvent& event) {
  restart(event);
  for (PerfEvent* const child : event.children) {
    child->addr_filters = event.addr_filters;
    restart(*child);
  }
}

}  // namespace

long Kernel::set_filter(PerfEvent& event, uint64_t argument) {
  if (argument == 0) return -EFAULT;
  if (event.pmu->addr_filters_validate == nullptr) return -EINVAL;
  const auto* const text = reinterpret_cast<const char*>(argument);
  const size_t size = strnlen(text, kPageBytes);
  if (size == kPageBytes) return -EINVAL;
  auto filter_text = std::make_unique<FilterText>();
  filter_text->text.assign(text, size);
  // Goes on counting, so that those who knew the old filters see that these are others.
  if (event.filter_text != nullptr) {
    filter_text->filters.generation = event.filter_text->filters.generation;
  }
  int error =
      event::parse_addr_filters(filter_text->text.data(), size, event, filter_text->filters);
  if (error == 0) error = event::set_addr_filters(event, filter_text->filters);
  if (error != 0) return -error;
  event.filter_text = std::move(filter_text);
  apply(event);
  return 0;
}

void Kernel::map_object(Tid tid, const event::AddrMapping& mapping) {
  for (PerfEvent* const event : task_of(tid).context.events()) {
    PerfEvent& opened = event->parent != nullptr ? *parent_of(*event) : *event;
    if (opened.filter_text == nullptr) continue;
    if (event::map_addr_filters(opened.filter_text->filters, mapping) != 0) apply(opened);
  }
}

}  // namespace auxtrail::perf_event
