// The command line of `auxtrail record`, read into RecordOptions.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/commands.h"
#include "record/options.h"

namespace auxtrail::cli {

struct RecordArguments {
  record::RecordOptions options;
  std::optional<std::string> help;  // --help was given: print this and do nothing
};

// perf's options and meanings. Options end at the first word that is none, or at "--"; the rest is
// the command.
Result<RecordArguments> parse_record_arguments(const Arguments& arguments);

// Index of the command's first word among the arguments, arguments.size() if there is none.
size_t find_command_word(const Arguments& arguments);

}  // namespace auxtrail::cli
