// The recorder's signals: read as data, passed on to the command.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>

#include "base/result.h"
#include "base/unique_fd.h"

namespace auxtrail::record {

class RecorderSignals {
 public:
  // Blocks SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGPIPE in the calling thread;
  // threads made later inherit that. Signals that the caller ignores stay ignored.
  static Result<RecorderSignals> block();

  // Passes on what has arrived to `command`, but not what the terminal sent (the whole foreground
  // group has it) nor what a process for which `is_traced` holds sent to its group.
  // In snapshot mode SIGUSR2 is the recorder's own: returns whether one came.
  bool forward(pid_t command, const std::function<bool(pid_t)>& is_traced, bool takes_usr2);

  // The mask as it was before block(): the command's.
  [[nodiscard]] const sigset_t& original_mask() const { return original_mask_; }
  // Readable when a signal has arrived.
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  sigset_t original_mask_{};
};

}  // namespace auxtrail::record
