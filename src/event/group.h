// Event groups: who may join whom, as perf_event_open(2) decides it.
//
// IN-PROCESS CODE: no allocation, no locks, no libc.
//
// A group is scheduled as a whole: all of its events count at the same time or none does. Its
// leader is opened first, every other event is a sibling of it. The AUX leader of section 2 of the
// checklist is such a leader with samplers as siblings.
//
// Reference: perf_event_open(2); checklist A6, A8, A9; verified against the running kernel in
// group_oracle_test.cc.
#pragma once

#include <cstdint>

#include "event/event.h"

namespace auxtrail::event {

// The event that leads the group `event` is in; itself where it leads one or is alone.
[[nodiscard]] inline const Event& group_leader_of(const Event& event) {
  return event.group_leader != nullptr ? *event.group_leader : event;
}

// Before the event is made of `attr`, for a task (0: for a CPU whatever runs there). 0 or
// ENODEV  the leader was closed, or its task has exited
// EINVAL  of a task's events one is inherited and the other is not
[[nodiscard]] int check_leader(const Event& leader, const perf_event_attr& attr, uint32_t task);

// Once `event` exists (and is in no group). 0 or EINVAL, the first of: the leader is itself a
// sibling; another clock, CPU or task; only a leader may be exclusive or pinned; the group belongs
// to another hardware PMU.
[[nodiscard]] int check_group(const Event& leader, const Event& event);

// How many bytes read(2) gives of an event with that read_format among `siblings` siblings.
[[nodiscard]] uint64_t read_bytes(uint64_t read_format, uint32_t siblings);
inline constexpr uint64_t kMaxReadBytes = 16 * 1024;
// 0, or E2BIG if reading any event of the group with `event` in it would give more than
// kMaxReadBytes. `leader` may be the event itself.
[[nodiscard]] int check_read_size(const Event& leader, const Event& event);

// Makes `event` a sibling. It must have passed the checks.
void join_group(Event& leader, Event& event);
// Takes the event out of its group. The siblings of a leader lead groups of their own afterwards.
void leave_group(Event& event);

}  // namespace auxtrail::event
