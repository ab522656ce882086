// One event of -e that is no AUX event: from its text to the attr of what the kernel counts.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "record/event_rate.h"
#include "record/event_text.h"

namespace auxtrail::record {

struct SamplerEvent {
  perf_event_attr attr{};        // type, config, breakpoint, exclude_*, precise_ip
  std::string name;              // with its modifier: "task-clock:u"; or that of the term name=
  bool in_kernel = false;        // it overflows inside the kernel only
  bool read_group = false;       // :S
  std::optional<RateTerm> rate;  // period= or freq=
  std::optional<uint32_t> aux_sample_bytes;  // aux-sample-size=, as given
};

// Generic names that abi::find_event knows, raw events "r1a8", breakpoints (breakpoint_text.h) and
// tracepoints (tracepoint.h), with modifiers and terms. Errors: an unknown name (lists the known
// ones), what can't be seen from user space, terms that have no meaning here.
Result<SamplerEvent> read_sampler_event(const EventText& event, std::string_view group_modifiers,
                                        const std::string& tracefs);

}  // namespace auxtrail::record
