// "SUBSYSTEM:NAME" to a tracepoint's attr, through tracefs.
#pragma once

#include <linux/perf_event.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace auxtrail::record {

inline constexpr char kTracefs[] = "/sys/kernel/tracing";

// The attr (type and config, the kernel's number of the tracepoint). Errors: tracefs is not
// mounted, not readable for this user, or has no such tracepoint; a pattern ("sched:*"), of which
// one recording could not tell the events apart.
Result<perf_event_attr> find_tracepoint(std::string_view name, const std::string& tracefs);

}  // namespace auxtrail::record
