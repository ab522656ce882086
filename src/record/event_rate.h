// How often an event overflows: from -F, -c and the event's own terms to its attr.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "record/options.h"

namespace auxtrail::record {

// The terms freq= and period= of one event; the last of them counts.
struct RateTerm {
  bool is_frequency = false;
  uint64_t value = 0;
};

// Sets freq and sample_freq, or sample_period: the event's own term, else -c, else -F; without any,
// breakpoints and tracepoints overflow at each event (perf does so too), others at
// kDefaultFrequencyHz. Too fast rates are lowered to `max_rate_hz`, with a warning. Errors: 0.
Status set_rate(perf_event_attr& attr, const std::optional<RateTerm>& term,
                const RecordOptions& options, uint64_t max_rate_hz,
                std::vector<std::string>& warnings);

}  // namespace auxtrail::record
