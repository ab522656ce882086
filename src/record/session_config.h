// From options and machine to the one configuration of a session: what the trace unit opens in each
// process, what the samples look like, and the events of the file.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "channel/layout.h"
#include "perfdata/event.h"
#include "record/event_choice.h"
#include "record/machine.h"
#include "record/options.h"

namespace auxtrail::record {

// Ids of the events in the file; the first event's id also marks the side-band records.
inline constexpr uint64_t kLeaderId = 1;
inline constexpr uint64_t kSamplerId = 2;  // of the first; the others follow it

struct SessionPlan {
  EventChoice events;
  channel::SessionConfig config;
  std::vector<std::string> names;  // of config.samplers: "task-clock:u"
  std::string event_name;    // the kernel's events that trigger samples, in words; may be empty
  std::string counted_name;  // and those that the trace unit counts
  IntelPt intel_pt;
  std::vector<std::string> warnings;  // what was changed: a throttled frequency, a clipped size
};

// Errors: those of choose_events(), rings too small for one sample, and what the trace unit can't
// record yet.
Result<SessionPlan> plan_session(const RecordOptions& options, const MachineFacts& machine);

// Tries the trigger on this machine. Where the kernel refuses perf events altogether, clock events
// fall back to thread timers: that is a warning. Errors: an event that the machine does not have,
// or one that only the kernel could count where it refuses.
Status check_trigger(SessionPlan& plan);

// The two events of the file, AUX leader first.
std::vector<perfdata::Event> file_events(const SessionPlan& plan);

// The attr of the side-band event that the recorder opens for itself; its records carry the trailer
// of the leader's layout.
perf_event_attr side_band_attr(const channel::SessionConfig& config);

}  // namespace auxtrail::record
