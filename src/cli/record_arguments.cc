#include "cli/record_arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>

#include "record/size_text.h"

namespace auxtrail::cli {
namespace {

using record::RecordOptions;

constexpr std::string_view kValueLetters = "eFcom";
constexpr char kSnapshotLetter = 'S';  // its value, if any, follows at once
constexpr std::array<std::string_view, 8> kValueOptions = {
    "--event", "--freq", "--count", "--output", "--mmap-pages", "--trace", "--unit", "--filter"};

// The option texts as given; empty where an option was not.
struct Texts {
  std::string events;  // several joined by commas
  std::vector<record::FilterOption> filters;
  std::string frequency;
  std::string count;
  std::string output;
  std::string aux_sample;
  std::string pages;
  std::string trace;
  std::string unit;
  std::string snapshot;
  bool no_inherit = false;
  bool quiet = false;
};

void add_options(CLI::App& app, Texts& texts) {
  // As in perf, the last of several counts; but events add up, and a filter is of the event before.
  app.option_defaults()->take_last();
  app.add_option_function<std::string>(
         "-e,--event",
         [&texts](const std::string& event) {
           if (!texts.events.empty()) texts.events += ',';
           texts.events += event;
         },
         "The event whose overflows take the samples (task-clock:u); intel_pt//u: full trace;\n"
         "'{intel_pt//u,EVENT,...}': a group")
      ->trigger_on_parse();
  app.add_option_function<std::string>(
         "--filter",
         [&texts](const std::string& filter) {
           texts.filters.push_back({filter, texts.events.size()});
         },
         "What to trace: 'filter main @/bin/x', 'tracestop ...'; or a tracepoint's filter")
      ->trigger_on_parse();
  app.add_option("-F,--freq", texts.frequency, "Samples per second, or max (999); at most 20000");
  app.add_option("-c,--count", texts.count, "A sample every so many events, instead of -F");
  app.add_option("-o,--output", texts.output,
                 "The file to write (perf.data); an old one becomes FILE.old");
  app.add_option("--aux-sample", texts.aux_sample,
                 "--aux-sample[=SIZE]: bytes of execution history per sample (4096)");
  app.add_option("--snapshot", texts.snapshot,
                 "-S[e][SIZE]: only the newest trace, written at SIGUSR2, with e at the end too");
  app.add_option("-m,--mmap-pages", texts.pages,
                 "DATA[,AUX]: ring sizes per thread in pages, or with B/K/M/G (128,16;\n"
                 "1024 of AUX for full trace and snapshots)");
  app.add_flag("-i,--no-inherit", texts.no_inherit,
               "Sample the command's first thread only, no children");
  app.add_option("--unit", texts.unit,
                 "How the software unit traces: window, continuous or auto (auto)");
  app.add_option("--trace", texts.trace, "The trace unit: auto or soft (auto)");
  app.add_flag("-q,--quiet", texts.quiet, "Print no warnings and no summary");
  app.footer(
      "The command's exit status is passed on. 127: the command was not found, 126: it cannot be\n"
      "executed, 1: recording failed or the program cannot be sampled, 2: wrong usage.");
}

Status take_rate(const Texts& texts, RecordOptions& options) {
  if (!texts.frequency.empty() && !texts.count.empty()) {
    return fail({"choose the rate", fmt::format("-F {} -c {}", texts.frequency, texts.count),
                 "a frequency and a period exclude each other", "give one of them"});
  }
  if (texts.frequency == "max") {
    options.frequency_max = true;
  } else if (!texts.frequency.empty()) {
    AUXTRAIL_ASSIGN(options.frequency_hz, record::parse_size(texts.frequency, "-F"));
  }
  if (!texts.count.empty()) {
    AUXTRAIL_ASSIGN(options.period, record::parse_size(texts.count, "-c"));
    if (options.period == 0) {
      return fail({"choose the period", "-c 0", "a period must not be 0", "give 1 or more"});
    }
  }
  return {};
}

Status take_sizes(const Texts& texts, RecordOptions& options) {
  if (!texts.aux_sample.empty()) {
    AUXTRAIL_ASSIGN(const uint64_t bytes, record::parse_size(texts.aux_sample, "--aux-sample"));
    options.aux_sample_bytes = static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX));
  }
  if (!texts.pages.empty()) {
    const size_t comma = texts.pages.find(',');
    const std::string data = texts.pages.substr(0, comma);
    if (!data.empty()) {
      AUXTRAIL_ASSIGN(options.data_pages, record::parse_pages(data, "-m"));
    }
    if (comma != std::string::npos) {
      AUXTRAIL_ASSIGN(options.aux_pages, record::parse_pages(texts.pages.substr(comma + 1), "-m"));
    }
  }
  return {};
}

Status take_trace(const Texts& texts, RecordOptions& options) {
  if (texts.trace.empty() || texts.trace == "auto") return {};
  if (texts.trace != "soft") {
    return fail({"choose the trace unit", "--trace=" + texts.trace, "no such trace unit",
                 "use auto or soft"});
  }
  options.trace = record::TraceChoice::kSoftware;
  return {};
}

Status take_unit(const Texts& texts, RecordOptions& options) {
  if (texts.unit.empty() || texts.unit == "auto") return {};
  if (texts.unit != "window" && texts.unit != "continuous") {
    return fail({"choose how to trace", "--unit=" + texts.unit, "no such way",
                 "use window, continuous or auto"});
  }
  options.unit =
      texts.unit == "window" ? record::UnitChoice::kWindow : record::UnitChoice::kContinuous;
  return {};
}

// perf's letters: "e" for one more snapshot at the end, then the size.
Status take_snapshot(const Texts& texts, RecordOptions& options) {
  if (texts.snapshot.empty()) return {};
  record::SnapshotOptions snapshot;
  std::string_view size = texts.snapshot;
  snapshot.on_exit = size.front() == 'e';
  if (snapshot.on_exit) size.remove_prefix(1);
  if (!size.empty()) {
    AUXTRAIL_ASSIGN(snapshot.bytes, record::parse_size(size, "-S"));
  }
  options.snapshot = snapshot;
  return {};
}

Result<RecordOptions> to_options(const Texts& texts) {
  RecordOptions options;
  options.event = texts.events;
  options.filters = texts.filters;
  if (texts.output == "-") {
    return fail(
        {"choose the output", "-o -", "a recording can't be written to a pipe", "give a file"});
  }
  if (!texts.output.empty()) options.output = texts.output;
  options.inherit = !texts.no_inherit;
  options.quiet = texts.quiet;
  AUXTRAIL_TRY(take_rate(texts, options));
  AUXTRAIL_TRY(take_sizes(texts, options));
  AUXTRAIL_TRY(take_trace(texts, options));
  AUXTRAIL_TRY(take_unit(texts, options));
  AUXTRAIL_TRY(take_snapshot(texts, options));
  return options;
}

// What perf record has and auxtrail has not.
struct Missing {
  std::string_view option;
  const char* why;
};
constexpr Missing kMissing[] = {
    {"-p", "auxtrail does not attach: start the program with it"},
    {"--pid", "auxtrail does not attach: start the program with it"},
    {"-t", "auxtrail does not attach: start the program with it"},
    {"--tid", "auxtrail does not attach: start the program with it"},
    {"-a", "auxtrail samples the command's processes, not the whole system"},
    {"--all-cpus", "auxtrail samples the command's processes, not the whole system"},
    {"-C", "auxtrail samples the command's processes, not the whole system"},
    {"--cpu", "auxtrail samples the command's processes, not the whole system"},
    {"-g", "samples carry the branch history instead of call chains"},
    {"--call-graph", "samples carry the branch history instead of call chains"},
    {"-b", "every sample carries its branches: auxtrail script -F ip,brstack"},
    {"-j", "every sample carries its branches: auxtrail script -F ip,brstack"},
};

std::string explain(const std::vector<std::string>& words, const std::string& error) {
  for (const std::string& word : words) {
    for (const Missing& missing : kMissing) {
      if (word.substr(0, word.find('=')) == missing.option) {
        return fmt::format("{}: {}", missing.option, missing.why);
      }
    }
  }
  return error;
}

// CLI11 does not know of the command behind the options.
std::string with_command(std::string help) {
  constexpr std::string_view kOptions = "[OPTIONS]";
  const size_t at = help.find(kOptions);
  if (at != std::string::npos) help.insert(at + kOptions.size(), " [--] CMD [ARGUMENTS]");
  return help;
}

// How many words the option at the front takes: itself, and its value if that stands apart.
size_t words_of_option(const std::string& word) {
  if (word.substr(0, 2) == "--") {
    return std::find(kValueOptions.begin(), kValueOptions.end(), word) != kValueOptions.end() ? 2
                                                                                              : 1;
  }
  for (size_t i = 1; i < word.size() && word[i] != kSnapshotLetter; ++i) {
    if (kValueLetters.find(word[i]) != std::string_view::npos) return i + 1 == word.size() ? 2 : 1;
  }
  return 1;
}

// The options whose value is optional: CLI11 gets one. As in perf it stands behind '=', or at once
// behind -S; none means the default.
std::string with_value(const std::string& word) {
  if (word == "--aux-sample" || word == "--snapshot") return word + "=0";
  if (word.size() < 2 || word[0] != '-' || word[1] != kSnapshotLetter) return word;
  return "--snapshot=" + (word.size() == 2 ? "0" : word.substr(2));
}

}  // namespace

size_t find_command_word(const Arguments& arguments) {
  size_t index = 0;
  while (index < arguments.size()) {
    const std::string& word = arguments[index];
    if (word == "--") return index + 1;
    if (word.size() < 2 || word[0] != '-') return index;
    index += words_of_option(word);
  }
  return arguments.size();
}

Result<RecordArguments> parse_record_arguments(const Arguments& arguments) {
  Texts texts;
  CLI::App app("Runs CMD and records the execution history that leads up to each sample.",
               "auxtrail record");
  add_options(app, texts);
  const size_t command = std::min(find_command_word(arguments), arguments.size());
  std::vector<std::string> words(arguments.begin(),
                                 arguments.begin() + static_cast<std::ptrdiff_t>(command));
  if (!words.empty() && words.back() == "--") words.pop_back();
  if (!words.empty() && words.back() == "--aux-sample" && command < arguments.size() &&
      record::parse_size(arguments[command], "--aux-sample")) {
    return fail({"read the command line", "--aux-sample " + arguments[command],
                 "its value stands behind '='", "--aux-sample=" + arguments[command]});
  }
  for (std::string& word : words) word = with_value(word);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // as CLI11 takes them
  } catch (const CLI::CallForHelp&) {
    return RecordArguments{{}, with_command(app.help())};
  } catch (const CLI::ParseError& error) {
    return fail(
        {"read the command line", "", explain(words, error.what()), "see auxtrail record --help"});
  }
  RecordArguments result;
  AUXTRAIL_ASSIGN(result.options, to_options(texts));
  result.options.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(command),
                                arguments.end());
  if (result.options.command.empty()) {
    return fail({"read the command line", "", "no command to record",
                 "auxtrail record [OPTIONS] [--] CMD"});
  }
  result.options.recorder_command_line = {"auxtrail", "record"};
  result.options.recorder_command_line.insert(result.options.recorder_command_line.end(),
                                              arguments.begin(), arguments.end());
  return result;
}

}  // namespace auxtrail::cli
