// Context: the events of one task, or of one CPU, and which of them are on their PMUs.
//
// While the task runs (a CPU's context always does) every group whose leader is enabled is on its
// PMU as a whole: the leader, and those siblings that are enabled. There are as many counters as
// anybody wants; only a PMU that refuses an event keeps a group off. A task's time in the sense of
// PERF_FORMAT_TOTAL_TIME_ENABLED is the time that it runs.
#pragma once

#include <cstdint>
#include <vector>

#include "event/event.h"
#include "perf_event/perf_event.h"

namespace auxtrail::perf_event {

class Context {
 public:
  // `now` is the system's clock; it outlives the context.
  explicit Context(const uint64_t& now) : now_(now) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Takes the event in, at the end of the group it has joined, and puts it on its PMU if it is to
  // be.
  void install(PerfEvent& event);
  // Takes it off its PMU and out of the context; its group stays as it is.
  void remove(PerfEvent& event);
  // Takes it out of its group. Siblings lead groups of their own, samplers lose their AUX leader.
  // Both stay in their contexts.
  void leave_group(PerfEvent& event);

  // The task runs at `where` from here on (the object may change meanwhile), or does not any more.
  void schedule_in(const event::Moment& where);
  void schedule_out();
  [[nodiscard]] bool running() const { return where_ != nullptr; }
  // Another thread runs on the CPU whose context this is.
  void change_thread();

  void enable(PerfEvent& event);
  void disable(PerfEvent& event);
  // Disables the events that have put it off (event/overflow.h).
  void run_pending();

  // Brings count, time_enabled and time_running up to date.
  void update(PerfEvent& event);

  [[nodiscard]] const std::vector<PerfEvent*>& events() const { return events_; }

 private:
  [[nodiscard]] uint64_t time() const;
  [[nodiscard]] bool may_be_on(const PerfEvent& event) const;
  bool put_on(PerfEvent& event);
  void take_off(PerfEvent& event);
  void put_group_on(PerfEvent& leader);
  void take_group_off(PerfEvent& leader);
  void update_time(PerfEvent& event);
  void update_group_time(PerfEvent& event);

  const uint64_t& now_;
  const event::Moment* where_ = nullptr;
  uint64_t ran_before_ = 0;
  uint64_t since_ = 0;
  std::vector<PerfEvent*> events_;
};

}  // namespace auxtrail::perf_event
