// Event: one perf event of one thread, and the link from a sampler to its AUX leader.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// The AUX-capable event leads the group; every sampler that sets aux_sample_size (or aux_output) is
// linked to it and holds one reference. Zeroed memory is a valid, dead event: init() brings it to
// life with one reference. Events are owned by their caller and do not move while linked.
// Reference: seed, perf_get_aux_event / perf_put_aux_event; checklist A10, A12.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>

#include "event/pmu.h"
#include "event/signal_atomic.h"

namespace auxtrail::event {

class AuxArea;
class DataRing;
struct AddrFilters;

// The kernel's numbers, so that "at least inactive" is a comparison.
enum class EventState : int32_t {
  kDead = -5,   // closed
  kExit = -3,   // its task has exited; what it counted can still be read
  kError = -2,  // could not be scheduled, or lost its AUX leader; enabling it helps
  kOff = -1,
  kInactive = 0,
  kActive = 1
};

// The part of an event that belongs to its PMU.
struct HwState {
  uint64_t config = 0;
  bool stopped = true;  // the PMU is not counting or tracing for this event
  bool aux_paused =
      false;  // tracing is paused (attr.aux_action); a started event then traces nothing
  void* context = nullptr;               // the PMU's per-thread state
  uint64_t addr_filters_generation = 0;  // of the address filters that the PMU has taken over
  // Of an event that a PMU in software counts: what is left of the period, negative while counting.
  uint64_t sample_period = 0;
  uint64_t last_period = 0;
  int64_t period_left = 0;
};

// Where and when something happens: what records say of it.
struct Moment {
  uint32_t pid = 0;
  uint32_t tid = 0;
  uint32_t cpu = 0;
  uint64_t time_ns = 0;
};

struct Event {
  constexpr Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // (Re)initialises the event as an open(2) would: state kOff if attr.disabled, else kInactive; one
  // reference; no links. Asks the PMU's event_init. Returns 0 or its errno.
  [[nodiscard]] int init(const perf_event_attr& new_attr, uint64_t new_id, const Pmu& new_pmu,
                         void* pmu_context);

  // Puts the event on thread `thread_id` (never 0) and on its PMU; kActive on success. Returns 0 or
  // an errno, with the state as before.
  [[nodiscard]] int schedule_in(uint32_t thread_id, uint32_t flags);
  void schedule_out();

  perf_event_attr attr{};
  uint64_t id = 0;
  EventState state = EventState::kInactive;
  uint32_t oncpu = 0;  // the thread this event is on, 0 when it is on none
  const Pmu* pmu = nullptr;
  HwState hw;
  Event* parent = nullptr;  // the event this one was inherited from; its id and buffers are used

  DataRing* ring = nullptr;             // where the event's records go
  AuxArea* aux = nullptr;               // a leader's AUX area
  AddrFilters* addr_filters = nullptr;  // null: none
  // For the records that the PMU causes (PERF_RECORD_AUX); kept up by whoever schedules the event.
  // Null: all zero, but for the thread it is on.
  const Moment* moment = nullptr;

  // What it counts. Fixed by whoever opens it, after init().
  uint32_t task = 0;   // 0: whatever runs on `cpu`
  int32_t cpu = -1;    // -1: wherever the task runs
  int32_t clock = -1;  // attr.clockid if attr.use_clockid, else -1

  Event* group_leader = nullptr;  // of a sibling (group.h)
  Event* siblings = nullptr;      // of a leader, linked by next_sibling in the order they joined
  Event* next_sibling = nullptr;
  uint32_t sibling_count = 0;

  Event* aux_event = nullptr;     // a sampler's leader; holds one reference on it
  Event* aux_samplers = nullptr;  // a leader's samplers, linked by aux_sampler_next
  Event* aux_sampler_next = nullptr;
  SignalAtomic<uint64_t> refcount{0};

  // What read(2) would give; lost = samples that found no room (PERF_FORMAT_LOST).
  uint64_t count = 0;
  uint64_t time_enabled = 0;
  uint64_t time_running = 0;
  SignalAtomic<uint64_t> lost{0};

  // Overflows until the event disables itself (PERF_EVENT_IOC_REFRESH); 0: never.
  SignalAtomic<int64_t> event_limit{0};
  // Set in "NMI" context: the event is to be disabled as soon as it is safe (overflow.h).
  SignalAtomic<bool> pending_disable{false};
};

// The event that was opened: the parent of an inherited one. Its id, ring and lost count are used.
[[nodiscard]] inline const Event& primary_event(const Event& event) {
  return event.parent != nullptr ? *event.parent : event;
}
[[nodiscard]] inline Event& primary_event(Event& event) {
  return event.parent != nullptr ? *event.parent : event;
}
// The id that records carry.
[[nodiscard]] inline uint64_t primary_event_id(const Event& event) {
  return primary_event(event).id;
}
[[nodiscard]] inline DataRing* ring_of(const Event& event) { return primary_event(event).ring; }
// Where an AUX leader's trace really goes: the parent's buffer for an inherited event.
[[nodiscard]] inline AuxArea* aux_area_of(const Event& leader) { return primary_event(leader).aux; }

// What a PMU's events may ask of AUX tracing (A7), before the group is looked at. 0 or
// EOPNOTSUPP  aux_output or aux_start_paused on a PMU without it; aux_output with pause or resume
// EINVAL      pause and resume at once
[[nodiscard]] int check_aux_attr(const perf_event_attr& attr, const Pmu& pmu);

// Why a sampler could not be linked. All of these are EINVAL to perf_event_open's caller.
enum class AuxLink : uint8_t {
  kOk,
  kNoLeader,       // aux_output, aux_sample_size, aux_pause or aux_resume without a group leader
  kBothKinds,      // aux_output excludes the others
  kNoAuxOutput,    // aux_output, but the leader's PMU does not take this event's records
  kNoPause,        // aux_pause or aux_resume, but the leader's PMU cannot
  kNoSnapshot,     // aux_sample_size, but the leader's PMU has no snapshot_aux
  kNotOverwrite,   // aux_sample_size, but the leader's AUX area is mapped in normal mode
  kLeaderGone,     // the leader's last reference is already dropped
  kAlreadyLinked,  // the event has a leader
};
[[nodiscard]] int to_errno(AuxLink result);

// Must the event be linked to an AUX leader when it is opened? (PERF_SAMPLE_AUX alone does not need
// one.)
[[nodiscard]] bool need_aux_event(const Event& event);
// Links `event` to `leader` and takes exactly one reference on it, or changes nothing.
[[nodiscard]] AuxLink get_aux_event(Event& event, Event* leader);
// Undoes the links of an event that goes away: a sampler lets go of its leader; a leader's samplers
// lose it and go to kError (their later samples have AUX size 0).
void put_aux_event(Event& event);
// Drops the reference that init() gave, after put_aux_event().
void close_event(Event& event);

// References of other kinds, such as an inherited event's on its parent. False, and none taken, if
// the last one is already dropped.
[[nodiscard]] bool take_reference(Event& event);
void drop_reference(Event& event);

}  // namespace auxtrail::event
