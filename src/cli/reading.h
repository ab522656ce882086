// What the commands that read a perf.data file share: their options, their start and their end.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/recording.h"
#include "cli/commands.h"
#include "decode/branch_decoder.h"

namespace auxtrail::cli {

inline constexpr int kStatusFailure = 1;
inline constexpr int kStatusUsage = 2;

struct ReadingOptions {
  std::string input = "perf.data";
  std::string symfs;
  decode::DecoderKind decoder = decode::DecoderKind::kNative;  // if the command decodes
};

// -i/--input and --symfs.
void add_reading_options(CLI::App& app, ReadingOptions& options);

// --decoder=native|libipt.
void add_decoder_option(CLI::App& app, decode::DecoderKind& kind);

// Parses. A value is the exit status with which the command must end now: help was printed, or the
// command line was wrong and a message says so.
std::optional<int> parse_command_line(CLI::App& app, const Arguments& arguments,
                                      std::string_view command);

// Opens the recording; on failure nothing, after a message.
std::optional<analysis::Recording> open_recording(const ReadingOptions& options,
                                                  std::string_view command);

// "auxtrail COMMAND: text" on stderr.
void complain(std::string_view command, std::string_view text);
void print_warnings(std::string_view command, const std::vector<std::string>& lines);

}  // namespace auxtrail::cli
