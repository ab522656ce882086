// Finding the command's program file and telling whether it can be sampled, before it is started.
//
// The software trace unit is a preloaded library, so it reaches 64-bit x86 programs that start
// through glibc's dynamic loader and keep their environment. Everything else is refused with the
// reason: running it anyway would give an empty recording.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace auxtrail::record {

struct Command {
  std::string path;     // what is executed: `name` as found in PATH
  std::string program;  // the ELF file that will run: `path`, or the interpreter of a script
};

// Looks the name up as execvp would and follows "#!" lines to the ELF file behind them.
// Error.sys_errno is ENOENT (and the like) if there is no such file, EACCES if it cannot be
// executed.
Result<Command> find_command(const std::string& name);

// An Error that says why the program cannot be sampled and what to do instead: statically linked,
// 32-bit, other machine, other C library, set-user-id or file capabilities that take effect.
Status check_can_be_sampled(const Command& command);

// The shell's exit status for a command that could not be started: 127 not found, 126 not
// executable.
int exit_status_of_start_failure(int sys_errno);

}  // namespace auxtrail::record
