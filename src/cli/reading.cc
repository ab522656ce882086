#include "cli/reading.h"

#include <fmt/format.h>

#include <cstdio>

namespace auxtrail::cli {

void add_reading_options(CLI::App& app, ReadingOptions& options) {
  app.add_option("-i,--input", options.input, "The perf.data file to read (perf.data)");
  app.add_option("--symfs", options.symfs, "Look for all programs and libraries below this folder");
}

void add_decoder_option(CLI::App& app, decode::DecoderKind& kind) {
  const auto choose = [&kind](const std::string& name) {
    kind = name == "libipt" ? decode::DecoderKind::kLibipt : decode::DecoderKind::kNative;
  };
  app.add_option_function<std::string>("--decoder", choose,
                                       "Who decodes: native, or libipt (native)")
      ->check(CLI::IsMember({"native", "libipt"}));
}

std::optional<int> parse_command_line(CLI::App& app, const Arguments& arguments,
                                      std::string_view command) {
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    complain(command, fmt::format("{}; see auxtrail {} --help", error.what(), command));
    return kStatusUsage;
  }
  return std::nullopt;
}

std::optional<analysis::Recording> open_recording(const ReadingOptions& options,
                                                  std::string_view command) {
  image::DsoOptions dso_options;
  dso_options.symfs = options.symfs;
  auto recording = analysis::Recording::open(options.input, dso_options);
  if (recording) return std::move(*recording);
  complain(command, recording.error().message());
  return std::nullopt;
}

void complain(std::string_view command, std::string_view text) {
  fmt::print(stderr, "auxtrail {}: {}\n", command, text);
}

void print_warnings(std::string_view command, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) complain(command, fmt::format("warning: {}", line));
}

}  // namespace auxtrail::cli
