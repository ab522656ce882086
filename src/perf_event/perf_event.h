// PerfEvent: an event of the engine with what the system calls know about it besides.
//
// It lives as long as somebody refers to it: its file (closed, and unmapped too), the samplers that
// it leads, the events inherited from it. The kernel's struct perf_event.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "event/addr_filter.h"
#include "event/event.h"

namespace auxtrail::perf_event {

class Buffer;
class Context;
struct RegisteredPmu;

// PERF_EVENT_IOC_SET_FILTER: the string, and what was read from it, which points into it.
struct FilterText {
  std::string text;
  event::AddrFilters filters;
};

struct PerfEvent : event::Event {
  Context* context = nullptr;  // of its task or CPU; null once its task has exited or it is closed
  RegisteredPmu* registration = nullptr;
  bool counted_as_exclusive = false;

  std::shared_ptr<Buffer> buffer;  // its own, or another's (PERF_EVENT_IOC_SET_OUTPUT)
  uint32_t mmap_count = 0;         // mappings made through this event

  std::unique_ptr<FilterText> filter_text;  // its inherited events use it, too

  std::vector<PerfEvent*> children;  // inherited from it, oldest first
  // What the children that are gone have counted.
  uint64_t child_count = 0;
  uint64_t child_time_enabled = 0;
  uint64_t child_time_running = 0;

  uint64_t time_stamp = 0;  // its context's time up to which its times are counted
};

[[nodiscard]] inline PerfEvent* as_perf_event(event::Event* event) {
  return static_cast<PerfEvent*>(event);
}
[[nodiscard]] inline PerfEvent& group_leader_of(PerfEvent& event) {
  return event.group_leader != nullptr ? static_cast<PerfEvent&>(*event.group_leader) : event;
}
[[nodiscard]] inline PerfEvent* parent_of(const PerfEvent& event) {
  return as_perf_event(event.parent);
}
// Calls visit(PerfEvent&) for the siblings of a leader. It may take the one it is given out of the
// group.
template <class Visit>
void for_each_sibling(PerfEvent& leader, Visit&& visit) {
  for (event::Event* sibling = leader.siblings; sibling != nullptr;) {
    event::Event* const next = sibling->next_sibling;
    visit(*as_perf_event(sibling));
    sibling = next;
  }
}
[[nodiscard]] inline bool is_sampling(const event::Event& event) {
  return event.attr.sample_period != 0;  // or sample_freq, which is the same field
}
// Is the event an AUX leader whose trace samples are cut from? They are cut from the newest bytes,
// which only an area in overwrite mode keeps.
[[nodiscard]] inline bool is_sampled(const event::Event& event) {
  for (const event::Event* sampler = event.aux_samplers; sampler != nullptr;
       sampler = sampler->aux_sampler_next) {
    if (sampler->attr.aux_sample_size != 0) return true;
  }
  return false;
}
[[nodiscard]] inline bool has_aux(const event::Event& event) {
  return event.pmu != nullptr && event.pmu->setup_aux != nullptr;
}

}  // namespace auxtrail::perf_event
