// clone(2): what a new task inherits.
//
// Whole groups are inherited, in the shape they have at that moment: the copy of the leader leads
// the copies of the siblings, and copies of samplers are linked to the copy of their AUX leader,
// never to the parent's. A copy's parent is always the event that was opened, however many
// generations ago: its ring and AUX area are used, its reader is woken. Events that are being
// closed are left out.
#include <cerrno>

#include "event/group.h"
#include "perf_event/kernel.h"

namespace auxtrail::perf_event {

using event::EventState;

namespace {

bool is_inherited(const PerfEvent& leader, bool thread) {
  if (leader.attr.inherit == 0) return false;
  return leader.attr.inherit_thread == 0 || thread;
}

}  // namespace

long Kernel::clone(Tid caller, bool thread) {
  const Call call(*this);
  Task& parent = task_of(caller);
  const Tid tid = thread ? next_tid_++ : start_process(*parent.process.user);
  if (thread) {
    tasks_[tid] = std::make_unique<Task>(tid, parent.process, now_ns_);
    ++parent.process.threads;
  } else {
    Process& process = *processes_.at(tid);
    process.descriptors = parent.process.descriptors;
    for (File* const file : process.descriptors) {
      if (file != nullptr) ++file->references;
    }
  }
  Task& child = task_of(tid);
  const std::vector<PerfEvent*> events = parent.context.events();
  for (const bool pinned : {true, false}) {
    for (PerfEvent* const event : events) {
      const bool leads = event->group_leader == nullptr && (event->attr.pinned != 0) == pinned;
      if (!leads || !is_inherited(*event, thread)) continue;
      if (const int error = inherit_group(*event, child); error != 0) {
        reap(tid);
        return -error;
      }
    }
  }
  return static_cast<long>(tid);
}

int Kernel::inherit_group(PerfEvent& leader, Task& child) {
  PerfEvent* child_leader = nullptr;
  if (const int error = inherit_event(leader, nullptr, child, child_leader); error != 0) {
    return error;
  }
  std::vector<PerfEvent*> siblings;
  for_each_sibling(leader, [&siblings](PerfEvent& sibling) { siblings.push_back(&sibling); });
  for (PerfEvent* const sibling : siblings) {
    PerfEvent* copy = nullptr;
    if (const int error = inherit_event(*sibling, child_leader, child, copy); error != 0) {
      return error;
    }
    if (copy == nullptr || sibling->aux_event != &leader) continue;
    const event::AuxLink link = event::get_aux_event(*copy, child_leader);
    if (link != event::AuxLink::kOk) return to_errno(link);
  }
  return 0;
}

// `inherited` stays null for an event that is being closed.
int Kernel::inherit_event(PerfEvent& event, PerfEvent* leader, Task& child, PerfEvent*& inherited) {
  PerfEvent& parent = event.parent != nullptr ? *parent_of(event) : event;
  if (parent.state == EventState::kDead) return 0;
  PerfEvent& copy = add_event();
  copy.refcount.store(1);
  int error = pmus_.init(copy, parent.attr, next_id_++, child.tid, parent.cpu);
  copy.refcount.store(1);
  copy.task = child.tid;
  copy.cpu = parent.cpu;
  copy.clock = parent.clock;
  if (error == 0) error = pmus_.count_exclusive(copy);
  // A PMU's event_init may have taken its time: the parent is asked again.
  if (error != 0 || parent.state == EventState::kDead || !event::take_reference(parent)) {
    put(copy);
    return error;
  }
  copy.parent = &parent;
  copy.addr_filters = parent.addr_filters;
  copy.hw.sample_period = copy.hw.last_period = event.hw.sample_period;
  copy.hw.period_left = static_cast<int64_t>(copy.hw.sample_period);
  copy.state = event.state >= EventState::kInactive ? EventState::kInactive : EventState::kOff;
  parent.children.push_back(&copy);
  if (leader != nullptr) event::join_group(*leader, copy);
  child.context.install(copy);
  inherited = &copy;
  return 0;
}

}  // namespace auxtrail::perf_event
