// auxtrail verify: decodes every AUX sample and says whether all is well.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "analysis/sample_walk.h"
#include "analysis/verification.h"
#include "cli/commands.h"
#include "cli/progress_bar.h"
#include "cli/reading.h"
#include "cli/text_output.h"

namespace auxtrail::cli {
namespace {

using analysis::SampleFailure;
using analysis::Verification;

constexpr std::string_view kCommand = "verify";
struct Quantile {
  double share;
  std::string_view text;
};
constexpr Quantile kQuantiles[] = {{0.0, "least"},
                                   {0.1, "10th percentile"},
                                   {0.5, "median"},
                                   {0.9, "90th percentile"},
                                   {1.0, "most"}};

std::string describe(const SampleFailure& failure) {
  const std::string place = fmt::format("sample at file offset {:#x}, tid {}, time {} ns, ip {:#x}",
                                        failure.record_offset, static_cast<int32_t>(failure.tid),
                                        failure.time_ns, failure.ip);
  if (failure.error) {
    return fmt::format("{}: {} at AUX offset {:#x}, after ip {:#x}", place,
                       decode::name(failure.error->cause), failure.error->offset,
                       failure.error->ip);
  }
  return fmt::format("{}: its history ends at {:#x}", place, failure.final_ip);
}

std::string_view verdict(const Verification& result, const std::string& damage) {
  if (!result.ok() || !damage.empty()) return "FAILED";
  if (result.nothing()) return "Nothing to verify: no sample carries AUX data.";
  return "All is well.";
}

// Full trace and snapshots.
void print_trace(TextOutput& out, const Verification& result) {
  const auto row = [&out](std::string_view name, uint64_t value) {
    out.print("{:<36} {:>14}\n", name, value);
  };
  row("threads (or CPUs) with full trace", result.traced_queues);
  row("AUXTRACE records", result.queues.buffers);
  row("bytes of full trace", result.queues.trace_bytes);
  row("  held by two snapshots", result.queues.overlap_bytes);
  row("  lost between records", result.queues.lost_bytes);
  row("gaps between records", result.queues.gaps);
  row("instructions traced", result.traced.instructions);
  row("branches traced, taken", result.traced.branches);
  row("branches traced, not taken", result.traced.not_taken);
  row("overflows in full trace", result.traced.overflows);
  row("decode errors in full trace", result.traced.error_count());
  for (size_t cause = 0; cause < decode::kErrorCauseCount; ++cause) {
    const uint64_t count = result.traced.errors[cause];
    if (count != 0) row(fmt::format("  {}", name(static_cast<decode::ErrorCause>(cause))), count);
  }
}

void print_text(TextOutput& out, const Verification& result, const std::string& damage) {
  const auto row = [&out](std::string_view name, uint64_t value) {
    out.print("{:<36} {:>14}\n", name, value);
  };
  row("samples", result.samples);
  row("samples with AUX data", result.samples_with_aux);
  row("bytes of AUX data", result.aux_bytes);
  row("instructions", result.decoded.instructions);
  row("branches taken", result.decoded.branches);
  row("branches not taken", result.decoded.not_taken);
  out.print("{:<36} {:>14.2f}\n", "bits of AUX data per branch taken", result.bits_per_branch());
  out.print("{:<36} {:>14.1f}\n", "branches per sample, mean", result.mean_branches());
  for (const Quantile& quantile : kQuantiles) {
    row(fmt::format("branches per sample, {}", quantile.text),
        result.branches_quantile(quantile.share));
  }
  row("samples without a branch", result.without_branches);
  row("gaps in histories", result.decoded.gaps);
  row("overflows", result.decoded.overflows);
  row("decode errors", result.decoded.error_count());
  for (size_t cause = 0; cause < decode::kErrorCauseCount; ++cause) {
    const uint64_t count = result.decoded.errors[cause];
    if (count != 0) row(fmt::format("  {}", name(static_cast<decode::ErrorCause>(cause))), count);
  }
  row("samples with decode errors", result.samples_with_errors);
  row("samples whose history ends elsewhere", result.ends_elsewhere);
  if (result.ends_before_filtered_ip != 0) {
    row("  outside the filters: ends before", result.ends_before_filtered_ip);
  }
  if (result.traced_queues != 0) print_trace(out, result);
  for (const SampleFailure& failure : result.failures) out.print("{}\n", describe(failure));
  if (!damage.empty()) out.print("the file is damaged: {}\n", damage);
  out.print("{}\n", verdict(result, damage));
}

nlohmann::ordered_json to_json(const SampleFailure& failure) {
  nlohmann::ordered_json json = {{"record_offset", failure.record_offset},
                                 {"time_ns", failure.time_ns},
                                 {"pid", failure.pid},
                                 {"tid", failure.tid},
                                 {"ip", failure.ip},
                                 {"final_ip", failure.final_ip}};
  if (failure.error) {
    json["error"] = {{"cause", decode::name(failure.error->cause)},
                     {"aux_offset", failure.error->offset},
                     {"ip", failure.error->ip}};
  }
  return json;
}

nlohmann::ordered_json trace_json(const Verification& result) {
  return {{"queues", result.traced_queues},
          {"records", result.queues.buffers},
          {"bytes", result.queues.trace_bytes},
          {"overlap_bytes", result.queues.overlap_bytes},
          {"lost_bytes", result.queues.lost_bytes},
          {"gaps", result.queues.gaps},
          {"instructions", result.traced.instructions},
          {"branches", result.traced.branches},
          {"branches_not_taken", result.traced.not_taken},
          {"overflows", result.traced.overflows},
          {"decode_errors", result.traced.error_count()}};
}

void print_json(TextOutput& out, const Verification& result, const std::string& damage) {
  nlohmann::ordered_json errors = nlohmann::ordered_json::object();
  for (size_t cause = 0; cause < decode::kErrorCauseCount; ++cause) {
    errors[std::string(name(static_cast<decode::ErrorCause>(cause)))] =
        result.decoded.errors[cause];
  }
  nlohmann::ordered_json distribution = nlohmann::ordered_json::object();
  for (const auto& [share, text] : kQuantiles) {
    distribution[fmt::format("{:.0f}%", share * 100)] = result.branches_quantile(share);
  }
  nlohmann::ordered_json failures = nlohmann::ordered_json::array();
  for (const SampleFailure& failure : result.failures) failures.push_back(to_json(failure));
  const nlohmann::ordered_json json = {{"ok", result.ok() && damage.empty()},
                                       {"samples", result.samples},
                                       {"samples_with_aux", result.samples_with_aux},
                                       {"aux_bytes", result.aux_bytes},
                                       {"instructions", result.decoded.instructions},
                                       {"branches", result.decoded.branches},
                                       {"branches_not_taken", result.decoded.not_taken},
                                       {"bits_per_branch", result.bits_per_branch()},
                                       {"branches_per_sample_mean", result.mean_branches()},
                                       {"branches_per_sample", distribution},
                                       {"samples_without_branches", result.without_branches},
                                       {"gaps", result.decoded.gaps},
                                       {"overflows", result.decoded.overflows},
                                       {"decode_errors", result.decoded.error_count()},
                                       {"decode_errors_by_cause", errors},
                                       {"samples_with_errors", result.samples_with_errors},
                                       {"samples_ending_elsewhere", result.ends_elsewhere},
                                       {"samples_outside_filters", result.ends_before_filtered_ip},
                                       {"full_trace", trace_json(result)},
                                       {"damage", damage},
                                       {"failures", failures}};
  out.print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

int run_verify(const Arguments& arguments) {
  ReadingOptions options;
  bool json = false;
  CLI::App app(
      "Decodes every AUX sample of a perf.data file and checks that each history leads up to its\n"
      "sample; and all full trace and snapshots. Exit status: 0 if all is well, 1 if anything is "
      "wrong, 2 for wrong usage.",
      "auxtrail verify");
  add_reading_options(app, options);
  add_decoder_option(app, options.decoder);
  app.add_flag("--json", json, "Print JSON");
  if (const auto status = parse_command_line(app, arguments, kCommand)) return *status;
  auto recording = open_recording(options, kCommand);
  if (!recording) return kStatusFailure;

  ProgressBar bar("Decoding", true);
  Verification result;
  analysis::SampleWalk walk(*recording, {.decoder = options.decoder,
                                         .progress = [&bar](double done) { bar.update(done); }});
  walk.run([&result](const analysis::WalkedSample& sample) {
    result.add(sample);
    return true;
  });
  result.add_trace(walk.statistics());
  bar.clear();
  const std::string damage =
      analysis::file_damage(recording->reader().statistics()).value_or(std::string());
  TextOutput out(STDOUT_FILENO);
  json ? print_json(out, result, damage) : print_text(out, result, damage);
  const int status = out.finish(kCommand);
  print_warnings(kCommand, walk.messages());
  return result.ok() && damage.empty() ? status : kStatusFailure;
}

}  // namespace auxtrail::cli
