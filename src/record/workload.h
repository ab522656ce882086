// Workload: the program being recorded, as the recorder's child process.
//
// The child is forked early and waits, so that side-band events can be opened on it before it runs;
// start() then lets it execute the command. It keeps stdin, stdout, stderr, the working directory,
// the process group and the signal dispositions of the recorder's caller; its signal mask is the
// one given (the recorder blocks signals for its own use). No descriptor of the recorder reaches
// it: all of them are close-on-exec. It does not notice the recorder's death.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "record/command.h"

namespace auxtrail::record {

class Workload {
 public:
  struct Environment {
    std::string preload;  // appended to LD_PRELOAD
    std::string socket;   // value of AUXTRAIL_SOCKET
  };

  // Forks. `arguments` is CMD and its arguments; `signal_mask` is set in the child before exec.
  static Result<Workload> fork(const Command& command, const std::vector<std::string>& arguments,
                               const Environment& environment, const sigset_t& signal_mask);

  Workload(Workload&&) noexcept = default;
  Workload& operator=(Workload&&) noexcept = default;
  // A child that was never started ends by itself when its gate closes; it is not waited for.
  ~Workload() = default;

  // Lets the child execute the command. Error with sys_errno if the exec failed (the child is gone
  // then and has been waited for).
  Status start();

  // The wait status if the child has ended; reaps it. Does not block.
  std::optional<int> try_wait();

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Readable once the child has ended; may be empty where the kernel has no pidfd.
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }

 private:
  Workload() = default;
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  UniqueFd gate_;         // a byte here lets the child go
  UniqueFd exec_result_;  // the errno of a failed exec; end of file: the exec worked
  std::string path_;
};

// The command's environment: the caller's, with LD_PRELOAD extended and AUXTRAIL_SOCKET set.
std::vector<std::string> child_environment(const char* const* environment,
                                           const Workload::Environment& additions);

// What a shell reports for a wait status: the exit status, or 128 + the signal.
int shell_status(int wait_status);

}  // namespace auxtrail::record
