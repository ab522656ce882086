#include "event/group.h"

#include <cerrno>

namespace auxtrail::event {
namespace {

// The hardware PMU that the group's events are on; null for a group of software events, which can
// go with any.
const Pmu* hardware_pmu(const Event& leader) {
  if (leader.pmu != nullptr && !leader.pmu->software_context) return leader.pmu;
  for (const Event* event = leader.siblings; event != nullptr; event = event->next_sibling) {
    if (event->pmu != nullptr && !event->pmu->software_context) return event->pmu;
  }
  return nullptr;
}

}  // namespace

int check_leader(const Event& leader, const perf_event_attr& attr, uint32_t task) {
  if (leader.refcount.load() == 0 || leader.state <= EventState::kExit) return ENODEV;
  return task != 0 && leader.attr.inherit != attr.inherit ? EINVAL : 0;
}

int check_group(const Event& leader, const Event& event) {
  if (leader.group_leader != nullptr) return EINVAL;
  if (leader.clock != event.clock) return EINVAL;
  if (leader.cpu != event.cpu) return EINVAL;
  if (leader.task != event.task) return EINVAL;
  if (event.attr.exclusive != 0 || event.attr.pinned != 0) return EINVAL;
  if (event.pmu == nullptr || event.pmu->software_context) return 0;
  const Pmu* const group_pmu = hardware_pmu(leader);
  return group_pmu == nullptr || group_pmu == event.pmu ? 0 : EINVAL;
}

uint64_t read_bytes(uint64_t read_format, uint32_t siblings) {
  const auto has = [read_format](uint64_t bit) { return (read_format & bit) != 0; };
  uint64_t words = 0;
  if (has(PERF_FORMAT_TOTAL_TIME_ENABLED)) ++words;
  if (has(PERF_FORMAT_TOTAL_TIME_RUNNING)) ++words;
  uint64_t words_each = 1;
  if (has(PERF_FORMAT_ID)) ++words_each;
  if (has(PERF_FORMAT_LOST)) ++words_each;
  const bool is_group = has(PERF_FORMAT_GROUP);
  if (is_group) ++words;  // their number
  words += words_each * (is_group ? uint64_t{1} + siblings : 1);
  return words * sizeof(uint64_t);
}

int check_read_size(const Event& leader, const Event& event) {
  const bool joins = &leader != &event;
  const uint32_t siblings = leader.sibling_count + (joins ? 1 : 0);
  const auto fits = [siblings](const Event& member) {
    return read_bytes(member.attr.read_format, siblings) <= kMaxReadBytes;
  };
  if (!fits(event) || !fits(leader)) return E2BIG;
  for (const Event* member = leader.siblings; member != nullptr; member = member->next_sibling) {
    if (!fits(*member)) return E2BIG;
  }
  return 0;
}

void join_group(Event& leader, Event& event) {
  Event** last = &leader.siblings;
  while (*last != nullptr) last = &(*last)->next_sibling;
  *last = &event;
  event.next_sibling = nullptr;
  event.group_leader = &leader;
  ++leader.sibling_count;
}

void leave_group(Event& event) {
  if (Event* const leader = event.group_leader; leader != nullptr) {
    Event** link = &leader->siblings;
    while (*link != nullptr && *link != &event) link = &(*link)->next_sibling;
    if (*link != nullptr) {
      *link = event.next_sibling;
      --leader->sibling_count;
    }
    event.group_leader = nullptr;
    event.next_sibling = nullptr;
    return;
  }
  while (event.siblings != nullptr) {
    Event& sibling = *event.siblings;
    event.siblings = sibling.next_sibling;
    sibling.group_leader = nullptr;
    sibling.next_sibling = nullptr;
  }
  event.sibling_count = 0;
}

}  // namespace auxtrail::event
