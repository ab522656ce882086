// auxtrail report: a flat profile, by default by function and file.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/profile.h"
#include "analysis/sample_walk.h"
#include "cli/commands.h"
#include "cli/progress_bar.h"
#include "cli/reading.h"
#include "cli/text_output.h"

namespace auxtrail::cli {
namespace {

using analysis::EventProfile;
using analysis::ProfileCounts;
using analysis::ProfileRow;
using analysis::SortKey;

constexpr std::string_view kCommand = "report";
constexpr size_t kWidestColumn = 60;  // longer names (C++ templates) push their own row out only

struct ReportOptions {
  ReadingOptions reading;
  std::string sort = "sym,dso";
  double percent_limit = 0;
  bool json = false;
  bool stdio = false;  // the only kind of display; for those who are used to perf
};

double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

// perf's colours: hot rows red, warm rows green.
std::string_view colour(double self_percent, bool coloured) {
  if (!coloured || self_percent < 0.5) return "";
  return self_percent >= 5 ? "\x1b[31m" : "\x1b[32m";
}

std::vector<size_t> key_widths(const EventProfile& profile, const std::vector<SortKey>& keys) {
  std::vector<size_t> widths;
  for (const SortKey key : keys) widths.push_back(column_title(key).size());
  for (const ProfileRow& row : profile.rows) {
    for (size_t i = 0; i + 1 < widths.size(); ++i) {  // the last column has no edge to keep
      const size_t width = row.keys[i].size();
      if (width <= kWidestColumn) widths[i] = std::max(widths[i], width);
    }
  }
  return widths;
}

void print_head(TextOutput& out, const EventProfile& profile) {
  if (profile.full_trace) {
    out.print("# Full trace: every instruction counts for Self\n");
    out.print("# Trace: {} branches, {} instructions\n#\n", profile.total.branches,
              profile.total.instructions);
    return;
  }
  out.print("# Samples: {} of event '{}'\n", profile.total.samples, profile.event->name);
  out.print("# Event count (approx.): {}\n", profile.total.weight);
  out.print("# History: {} branches, {} instructions before {} samples\n#\n",
            profile.total.branches, profile.total.instructions, profile.samples_with_history);
}

void print_event(TextOutput& out, const EventProfile& profile, const std::vector<SortKey>& keys,
                 double percent_limit) {
  const bool coloured = wants_colour(STDOUT_FILENO);
  const std::vector<size_t> widths = key_widths(profile, keys);
  print_head(out, profile);
  out.print("# {:>7}  {:>8}  {:>12}  {:>7}", "Self", "Samples", "Branches", "History");
  for (size_t i = 0; i < keys.size(); ++i) out.print("  {:<{}}", column_title(keys[i]), widths[i]);
  out.print("\n#\n");
  for (const ProfileRow& row : profile.rows) {
    const double self = percent(row.counts.weight, profile.total.weight);
    const double history = percent(row.counts.instructions, profile.total.instructions);
    if (std::max(self, history) < percent_limit) continue;
    const std::string_view start = colour(self, coloured);
    out.print("  {}{:>6.2f}%{}  {:>8}  {:>12}  {:>6.2f}%", start, self,
              start.empty() ? "" : "\x1b[0m", row.counts.samples, row.counts.branches, history);
    for (size_t i = 0; i < row.keys.size(); ++i) {
      out.print("  {:<{}}", row.keys[i], i + 1 < row.keys.size() ? widths[i] : 0);
    }
    out.print("\n");
  }
  out.print("\n");
}

nlohmann::ordered_json to_json(const ProfileCounts& counts) {
  return {{"period", counts.weight},
          {"samples", counts.samples},
          {"branches", counts.branches},
          {"instructions", counts.instructions}};
}

std::string_view json_name(SortKey key) {
  constexpr std::array<std::string_view, static_cast<size_t>(SortKey::kCount)> kNames = {
      "symbol", "dso", "line", "comm", "pid", "tid"};
  return kNames[static_cast<size_t>(key)];
}

nlohmann::ordered_json to_json(const EventProfile& profile, const std::vector<SortKey>& keys,
                               double percent_limit) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const ProfileRow& row : profile.rows) {
    const double self = percent(row.counts.weight, profile.total.weight);
    const double history = percent(row.counts.instructions, profile.total.instructions);
    if (std::max(self, history) < percent_limit) continue;
    nlohmann::ordered_json json;
    for (size_t i = 0; i < keys.size(); ++i) json[std::string(json_name(keys[i]))] = row.keys[i];
    json["self_percent"] = self;
    json["history_percent"] = history;
    json.update(to_json(row.counts));
    rows.push_back(std::move(json));
  }
  return {{"event", profile.event->name},
          {"total", to_json(profile.total)},
          {"samples_with_history", profile.samples_with_history},
          {"full_trace", profile.full_trace},
          {"rows", std::move(rows)}};
}

void add_options(CLI::App& app, ReportOptions& options) {
  add_reading_options(app, options.reading);
  add_decoder_option(app, options.reading.decoder);
  app.add_option("-s,--sort", options.sort,
                 "What the rows stand for, joined by commas: sym, dso, line, comm, pid, tid\n"
                 "(sym,dso)");
  app.add_option("--percent-limit", options.percent_limit,
                 "Leave out rows below this share (0 to 100) both of Self and of History")
      ->check(CLI::Range(0.0, 100.0));
  app.add_flag("--json", options.json, "Print JSON");
  app.add_flag("--stdio,--no-children", options.stdio,
               "Plain text and self shares: always the case");
  app.footer(
      "Self: share of the samples, weighted by their periods. Branches: taken in the histories\n"
      "before the samples, counted where they came from. History: share of the instructions\n"
      "executed there. Of full trace and snapshots every instruction counts: they are told as an\n"
      "event of their own, instructions:u, without samples.");
}

void print(TextOutput& out, const analysis::Profile& profile, const ReportOptions& options) {
  const auto events = profile.events();
  if (!options.json) {
    for (const EventProfile& event : events) {
      print_event(out, event, profile.keys(), options.percent_limit);
    }
    return;
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const EventProfile& event : events) {
    list.push_back(to_json(event, profile.keys(), options.percent_limit));
  }
  const nlohmann::ordered_json json = {{"events", std::move(list)}};
  out.print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

int run_report(const Arguments& arguments) {
  ReportOptions options;
  CLI::App app("Shows which functions ran, at the samples and in the histories before them.",
               "auxtrail report");
  add_options(app, options);
  if (const auto status = parse_command_line(app, arguments, kCommand)) return *status;
  auto keys = analysis::parse_sort_keys(options.sort);
  if (!keys) {
    complain(kCommand, keys.error().message());
    return kStatusUsage;
  }
  auto recording = open_recording(options.reading, kCommand);
  if (!recording) return kStatusFailure;

  ProgressBar bar("Decoding", true);
  analysis::Profile profile(*recording, std::move(*keys));
  analysis::SampleWalk walk(*recording, {.blocks = true,
                                         .overlaps = true,
                                         .decoder = options.reading.decoder,
                                         .progress = [&bar](double done) { bar.update(done); }});
  walk.run(
      [&profile](const analysis::WalkedSample& sample) {
        profile.add(sample);
        return true;
      },
      profile);
  bar.clear();
  TextOutput out(STDOUT_FILENO);
  print(out, profile, options);
  const int status = out.finish(kCommand);
  if (walk.statistics().samples == 0 && walk.statistics().traced_queues == 0) {
    complain(kCommand, "warning: the file holds no samples");
  }
  print_warnings(kCommand, walk.messages());
  return status;
}

}  // namespace auxtrail::cli
