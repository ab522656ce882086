// What read(2) gives of an event, and the READ field of a sample: its counts in the form that
// attr.read_format asks for.
//
// IN-PROCESS CODE: no allocation, no locks, no libc.
//
// Reference: perf_event_open(2), "Reading results".
#pragma once

#include <linux/perf_event.h>

#include <cstdint>

#include "event/event.h"
#include "event/group.h"

namespace auxtrail::event {

// Calls put(uint64_t) for each word: read_bytes() / 8 of them. With PERF_FORMAT_GROUP those of the
// whole group, the leader's first, in the order the siblings joined. The counts are as they stand:
// whoever wants the newest has the PMU read them before. The times are those of `timed`: in samples
// the event's own, in read(2) of a group the leader's.
template <class Put>
void for_each_read_word(const Event& event, const Event& timed, Put&& put) {
  const uint64_t format = event.attr.read_format;
  const auto put_times = [&] {
    if ((format & PERF_FORMAT_TOTAL_TIME_ENABLED) != 0) put(timed.time_enabled);
    if ((format & PERF_FORMAT_TOTAL_TIME_RUNNING) != 0) put(timed.time_running);
  };
  const auto put_rest = [&](const Event& member) {
    if ((format & PERF_FORMAT_ID) != 0) put(primary_event_id(member));
    if ((format & PERF_FORMAT_LOST) != 0) put(member.lost.load());
  };
  if ((format & PERF_FORMAT_GROUP) == 0) {
    put(event.count);
    put_times();
    put_rest(event);
    return;
  }
  const Event& leader = group_leader_of(event);
  put(uint64_t{1} + leader.sibling_count);
  put_times();
  const auto put_member = [&](const Event& member) {
    put(member.count);
    put_rest(member);
  };
  put_member(leader);
  for (const Event* member = leader.siblings; member != nullptr; member = member->next_sibling) {
    put_member(*member);
  }
}

template <class Put>
void for_each_read_word(const Event& event, Put&& put) {
  for_each_read_word(event, event, put);
}

}  // namespace auxtrail::event
