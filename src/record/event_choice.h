// -e EVENT: from perf's spelling of an event to the trigger of the samples.
#pragma once

#include <linux/perf_event.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace auxtrail::record {

struct EventChoice {
  perf_event_attr attr{};  // type, config, breakpoint and precise_ip; user space only
  std::string name;        // with its modifier: "task-clock:u"
};

// Accepts the generic names that abi::find_event knows, raw events "r1a8" and breakpoints
// "mem:ADDRESS[/LENGTH][:rwx]", with modifiers as in perf. The trace covers user space, so ":u" is
// implied. Errors: an unknown name (lists the known ones), a modifier that asks for the kernel, or
// an event that happens in the kernel only and can never interrupt user code.
Result<EventChoice> choose_event(std::string_view text);

}  // namespace auxtrail::record
