// Running a subcommand in the test's own process: exit status, stdout, stderr.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/unique_fd.h"
#include "cli/commands.h"

namespace auxtrail::cli::testing {

using Command = int (*)(const Arguments&);

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

inline std::string contents(int fd) {
  std::string text(static_cast<size_t>(::lseek(fd, 0, SEEK_END)), '\0');
  const ssize_t count = ::pread(fd, text.data(), text.size(), 0);
  text.resize(count < 0 ? 0 : static_cast<size_t>(count));
  return text;
}

// With `stdout_fd` for its stdout; Outcome::out stays empty.
inline Outcome run_into(Command command, const Arguments& arguments, int stdout_fd) {
  const UniqueFd err(::memfd_create("stderr", MFD_CLOEXEC));
  std::fflush(nullptr);
  const UniqueFd old_out(::dup(STDOUT_FILENO));
  const UniqueFd old_err(::dup(STDERR_FILENO));
  ::dup2(stdout_fd, STDOUT_FILENO);
  ::dup2(err.get(), STDERR_FILENO);
  Outcome outcome;
  outcome.status = command(arguments);
  std::fflush(nullptr);
  ::dup2(old_out.get(), STDOUT_FILENO);
  ::dup2(old_err.get(), STDERR_FILENO);
  outcome.err = contents(err.get());
  return outcome;
}

inline Outcome run(Command command, const Arguments& arguments) {
  const UniqueFd out(::memfd_create("stdout", MFD_CLOEXEC));
  Outcome outcome = run_into(command, arguments, out.get());
  outcome.out = contents(out.get());
  return outcome;
}

}  // namespace auxtrail::cli::testing
