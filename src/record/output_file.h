// The output file of a recording: checked before the program starts, an older file kept as perf
// does.
#pragma once

#include <string>

#include "base/result.h"
#include "perfdata/writer.h"
#include "record/session_config.h"

namespace auxtrail::record {

// Renames a non-empty regular file at `path` to `path`.old (replacing that), creates the new one,
// and writes what stands before the first sample: AUXTRACE_INFO, ID_INDEX and the maps. Errors: the
// file cannot be created or written.
Result<perfdata::Writer> create_output(const std::string& path, const SessionPlan& plan);

}  // namespace auxtrail::record
