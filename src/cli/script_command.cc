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
  bool no_itrace = false;
};

void add_options(CLI::App& app, ScriptOptions& options) {
  add_reading_options(app, options.reading);
  add_decoder_option(app, options.reading.decoder);
  app.add_option("-F,--fields", options.fields,
                 fmt::format("What to print, joined by commas, some of:\n{}.\nWith + or - before "
                             "every name: the default, changed.",
                             analysis::script_field_names()));
  app.add_option("--last", options.last,
                 "Print so many branches of each sample, the newest; 0: all (64)")
      ->check([](const std::string& text) {
        return text.starts_with('-') ? std::string("must not be negative") : std::string();
      });
  app.add_flag("--no-itrace", options.no_itrace,
               "Do not decode full trace and snapshots: samples only");
  app.footer(
      "Full trace and snapshots (AUXTRACE records) are printed branch by branch, between the\n"
      "samples by time, as perf script --itrace=b does.");
}

// Whether samples of this event are to be expected: the leader of AUX sampling takes none.
bool has_samples(const perfdata::Event& event, perfdata::Reader& reader) {
  const auto& info = reader.auxtrace_info();
  return !info || !info->intel_pt || event.attr.type != info->intel_pt->pmu_type;
}

// What one branch after the other is printed to.
class BranchPrinter : public analysis::TraceVisitor {
 public:
  BranchPrinter(analysis::SampleText& text, TextOutput& out) : text_(text), out_(out) {}
  void on_branch(const analysis::TracePosition& position, const decode::Branch& branch) override {
    lines_.clear();
    text_.append(position, branch, lines_);
    out_.write({lines_.data(), lines_.size()});
  }
  [[nodiscard]] bool wants_more() const override { return out_.open(); }

 private:
  analysis::SampleText& text_;
  TextOutput& out_;
  fmt::memory_buffer lines_;
};

// The fields of full trace's branches: those that were named, or perf's default.
ScriptFields branch_fields(const ScriptOptions& options) {
  if (options.fields.empty()) return ScriptFields::defaults().with_addr();
  const auto parsed = ScriptFields::parse(options.fields);
  if (!parsed) return ScriptFields::defaults();  // was refused before
  const bool changes = options.fields.front() == '+' || options.fields.front() == '-';
  return changes ? parsed->with_addr() : *parsed;
}

// The chosen fields as far as the samples have them; an error if one was named that they lack.
Result<ScriptFields> choose_fields(const ScriptOptions& options, perfdata::Reader& reader,
                                   bool full_trace) {
  const bool are_defaults = options.fields.empty();
  ScriptFields fields = ScriptFields::defaults();
  if (!are_defaults) {
    AUXTRAIL_ASSIGN(fields, ScriptFields::parse(options.fields));
  }
  for (const perfdata::Event& event : reader.events()) {
    if (!has_samples(event, reader)) continue;
    if (!are_defaults && !full_trace) AUXTRAIL_TRY(fields.check(event));
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
  const bool full_trace = !options.no_itrace && analysis::has_full_trace(recording->reader());
  const auto fields = choose_fields(options, recording->reader(), full_trace);
  if (!fields) {
    complain(kCommand, fields.error().message());
    return kStatusFailure;
  }

  if (app.get_option("--last")->count() != 0) {
    if (!fields->needs_history()) {
      complain(kCommand, "warning: --last is for brstack, brstacksym and brlist; name one with -F");
    }
    if (full_trace)
      complain(kCommand, "warning: --last is of samples; full trace is printed whole");
  }

  TextOutput out(STDOUT_FILENO);
  ProgressBar bar("Decoding", ::isatty(STDOUT_FILENO) == 0);
  analysis::SampleText text(*recording, *fields, options.last);
  analysis::SampleText branch_text(*recording, branch_fields(options), options.last);
  BranchPrinter branches(branch_text, out);
  const bool whole = fields->needs_whole_history() || options.last == 0;
  analysis::SampleWalk walk(*recording, {.decode = fields->needs_history() || full_trace,
                                         .newest_branches = whole ? 0 : options.last + 1,
                                         .times = fields->has(analysis::ScriptField::kBrtime),
                                         .full_trace = full_trace,
                                         .decoder = options.reading.decoder,
                                         .progress = [&bar](double done) { bar.update(done); }});
  fmt::memory_buffer lines;
  walk.run(
      [&](const analysis::WalkedSample& sample) {
        lines.clear();
        text.append(sample, lines);
        out.write({lines.data(), lines.size()});
        return out.open();
      },
      branches);
  bar.clear();
  const int status = out.finish(kCommand);
  if (out.open()) print_warnings(kCommand, walk.messages());
  return status;
}

}  // namespace auxtrail::cli
