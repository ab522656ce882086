// What a recording amounted to, and the lines that `auxtrail record` prints about it at the end.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "record/census.h"
#include "record/totals.h"

namespace auxtrail::record {

struct Summary {
  std::string file;
  uint64_t file_bytes = 0;
  bool file_complete = true;  // false: writing failed, later records are not in it
  std::string trace_unit;     // "software (no Intel PT: ...)"
  std::string event_name;     // the kernel's events that take samples; may be empty
  std::string counted_name;   // those that the trace unit counts; may be empty
  bool continuous = false;    // the units trace all the time
  uint64_t snapshots = 0;     // that were asked for
  RecordTotals records;
  UnitTotals units;
  uint64_t processes = 0;        // that are sampled
  uint64_t kernel_triggers = 0;  // of these, with a kernel event as trigger
  uint32_t timer_hz = 0;         // rate of thread timers, of the last process that used them
  std::map<int, uint64_t> trigger_refusals;  // errno of perf_event_open -> processes
  // Of the sampled processes, those in which something could not be opened, by its errno.
  std::map<std::pair<std::string, int>, uint64_t> unopened_events;  // by their names
  std::map<int, uint64_t> entry_refusals;    // of the clock that brings threads into the trace
  std::map<int, uint64_t> timer_refusals;    // of a timer in a clock's place
  std::optional<Census::Coverage> coverage;  // nothing where the side-band could not tell
  std::map<channel::Declined, uint64_t> declined;  // processes that their unit left alone
  uint64_t refused_connections = 0;
  uint64_t still_running = 0;                 // processes that outlived the command
  std::vector<std::string> unmapped_filters;  // files of --filter that no program had code of
  std::string side_band_note;  // why the kernel's side-band was not used; empty if it was
};

// "[ auxtrail record: Captured and wrote ... ]" and, as far as there is anything to tell, one line
// each about losses, events that did not open, windows that ended early, and processes that were
// not sampled.
std::vector<std::string> summary_lines(const Summary& summary);

// Overflows that gave no sample, but for those whose sample found no room in a ring (the rings tell
// of these themselves).
uint64_t overflows_without_sample(const UnitTotals& units);

}  // namespace auxtrail::record
