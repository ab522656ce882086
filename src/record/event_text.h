// The syntax of -e, as Linux perf 6.1 has it: groups, terms and modifiers, without their meaning.
//
//   LIST     := ITEM {"," ITEM}
//   ITEM     := EVENT | [NAME] "{" EVENT {"," EVENT} "}" [":" LETTERS]
//   EVENT    := NAME [":" LETTERS]                       page-faults:u, r1a8
//             | NAME "/" [TERM {"," TERM}] "/" [LETTERS]  intel_pt/psb_period=3/u
//             | SUBSYSTEM ":" NAME [":" LETTERS]          sched:sched_switch
//             | "mem:" ...                                to its end (breakpoint_text.h)
//   TERM     := NAME ["=" VALUE]
//
// "NAME:WORD" is an event with modifiers if NAME is a generic or raw event, else a tracepoint.
// Blanks around names are skipped, and no letters
// behind the colon are as none at all.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace auxtrail::record {

struct EventTerm {
  std::string name;
  std::optional<std::string> value;
};

struct EventText {
  std::string text;      // as written
  std::string name;      // "page-faults", "sched:sched_switch", "mem:0x404040/8:w"
  bool slashes = false;  // "intel_pt//", with or without terms
  std::vector<EventTerm> terms;
  std::string modifiers;  // its own letters
};

struct EventGroup {
  std::string name;  // what stands before the brace, mostly nothing
  bool braces = false;
  std::vector<EventText> events;  // one without braces
  std::string modifiers;          // the letters behind the closing brace, for all of them
};

// At least one group, each with at least one event. Errors tell the column.
Result<std::vector<EventGroup>> read_event_text(std::string_view text);

}  // namespace auxtrail::record
