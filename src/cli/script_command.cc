// auxtrail script: every sample as a line of text, with its branches if asked for.

#include <unistd.h>

#include <CLI/CLI.hpp>

#include "analysis/sample_text.h"
#include "analysis/sample_walk.h"
#include "analysis/script_fields.h"
#include "cli/commands.h"
#include "cli/progress_bar.h"
#include "cli/reading.h"
#include "cli/text_output.h"

namespace auxtrail::cli {
namespace {

using analysis::ScriptFields;

constexpr std::string_view kCommand = "script";
constexpr size_t kDefaultBranches = 64;  // as perf's --itrace=L

struct ScriptOptions {
  ReadingOptions reading;
  std::string fields;
  size_t last = kDefaultBranches;
};

void add_options(CLI::App& app, ScriptOptions& options) {
  add_reading_options(app, options.reading);
  app.add_option("-F,--fields", options.fields,
                 fmt::format("What to print, joined by commas, some of:\n{}.\nWith + or - before "
                             "every name: the default, changed.",
                             analysis::script_field_names()));
  app.add_option("--last", options.last,
                 "Print so many branches of each sample, the newest; 0: all (64)")
      ->check([](const std::string& text) {
        return text.starts_with('-') ? std::string("must not be negative") : std::string();
      });
}

// Whether samples of this event are to be expected: the leader of AUX sampling takes none.
bool has_samples(const perfdata::Event& event, perfdata::Reader& reader) {
  const auto& info = reader.auxtrace_info();
  return !info || !info->intel_pt || event.attr.type != info->intel_pt->pmu_type;
}

// The chosen fields as far as the samples have them; an error if one was named that they lack.
Result<ScriptFields> choose_fields(const ScriptOptions& options, perfdata::Reader& reader) {
  const bool are_defaults = options.fields.empty();
  ScriptFields fields = ScriptFields::defaults();
  if (!are_defaults) {
    AUXTRAIL_ASSIGN(fields, ScriptFields::parse(options.fields));
  }
  for (const perfdata::Event& event : reader.events()) {
    if (!has_samples(event, reader)) continue;
    if (!are_defaults) AUXTRAIL_TRY(fields.check(event));
    fields = fields.available(event);
  }
  return fields;
}

}  // namespace

int run_script(const Arguments& arguments) {
  ScriptOptions options;
  CLI::App app("Prints every sample, in the form of perf script.", "auxtrail script");
  add_options(app, options);
  if (const auto status = parse_command_line(app, arguments, kCommand)) return *status;
  if (!options.fields.empty()) {
    if (const auto parsed = ScriptFields::parse(options.fields); !parsed) {
      complain(kCommand, parsed.error().message());
      return kStatusUsage;
    }
  }
  auto recording = open_recording(options.reading, kCommand);
  if (!recording) return kStatusFailure;
  const auto fields = choose_fields(options, recording->reader());
  if (!fields) {
    complain(kCommand, fields.error().message());
    return kStatusFailure;
  }

  TextOutput out(STDOUT_FILENO);
  ProgressBar bar("Decoding", ::isatty(STDOUT_FILENO) == 0);
  analysis::SampleText text(*recording, *fields, options.last);
  analysis::SampleWalk walk(*recording, {.decode = fields->needs_history(),
                                         .progress = [&bar](double done) { bar.update(done); }});
  fmt::memory_buffer lines;
  walk.run([&](const analysis::WalkedSample& sample) {
    lines.clear();
    text.append(sample, lines);
    out.write({lines.data(), lines.size()});
    return out.open();
  });
  bar.clear();
  const int status = out.finish(kCommand);
  if (out.open()) print_warnings(kCommand, walk.messages());
  return status;
}

}  // namespace auxtrail::cli
