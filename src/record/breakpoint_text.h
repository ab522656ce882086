// "mem:ADDRESS[/LENGTH][:rwx][:MODIFIERS]": a hardware breakpoint in perf's spelling.
#pragma once

#include <linux/perf_event.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace auxtrail::record {

struct BreakpointText {
  perf_event_attr attr{};  // type, bp_addr, bp_type, bp_len; perf's defaults: rw, 4 bytes, for x 8
  std::string modifiers;
};

// `text` begins with "mem:". perf lets modifiers follow the access letters without a colon ("wu").
// Errors: not that spelling, and what no x86 debug register can do: other lengths than 1, 2, 4, 8,
// an address that is no multiple of the length, reads without writes, code of other than 8.
Result<BreakpointText> read_breakpoint(std::string_view text);

}  // namespace auxtrail::record
