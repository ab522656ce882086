// `auxtrail record` without its command line: runs the command, records it, tells how it went.
//
// The caller's process plays the recorder. It blocks SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and
// SIGUSR2 for its own thread and passes them on to the command (unless the terminal or the command
// itself sent them to the whole group already), so it always closes the file in order. It records
// until the command ends, as perf does; processes that outlive it are counted.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "record/options.h"
#include "record/summary.h"

namespace auxtrail::record {

struct Outcome {
  bool started = false;      // the command ran
  bool bad_options = false;  // nothing was started: the options make no sense, as `failure` says
  int wait_status = 0;       // of the command, if it was started
  int start_errno = 0;       // why the command could not be started; 0: another reason
  std::optional<Error> failure;    // why nothing was started, or what went wrong with the recording
  std::optional<Summary> summary;  // if it was started
};

// Blocks until the command has ended. `warn` gets a line for each thing that is not as asked.
Outcome run_session(const RecordOptions& options,
                    const std::function<void(const std::string&)>& warn);

}  // namespace auxtrail::record
