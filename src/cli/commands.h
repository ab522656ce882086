// The subcommands of auxtrail: one function and one file each.
//
// Each gets the arguments after its name and returns the process's exit status: 0, or 1 for a
// failure with a message on stderr, or 2 for a command line it does not understand, or what its man
// page says.
#pragma once

#include <string>
#include <vector>

namespace auxtrail::cli {

using Arguments = std::vector<std::string>;

int run_record(const Arguments& arguments);
int run_report(const Arguments& arguments);
int run_script(const Arguments& arguments);
int run_dump(const Arguments& arguments);
int run_decode(const Arguments& arguments);
int run_verify(const Arguments& arguments);
int run_doctor(const Arguments& arguments);

}  // namespace auxtrail::cli
