#include "record/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "channel/reasons.h"
#include "record/not_sampled.h"

namespace auxtrail::record {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;  // perf's "MB"

// The number came from the traced process.
std::string errno_name(int sys_errno) {
  const char* const name = ::strerrorname_np(sys_errno);
  return name != nullptr ? name : fmt::format("errno {}", sys_errno);
}

std::string in_processes(uint64_t count) {
  return fmt::format("in {} {}", count, count == 1 ? "process" : "processes");
}

std::string trigger_text(const Summary& summary) {
  std::vector<std::string> parts;
  if (!summary.counted_name.empty()) {
    parts.push_back("the trace unit's count of " + summary.counted_name);
  }
  const bool by_kernel = summary.kernel_triggers != 0 || summary.processes == 0;
  if (by_kernel && !summary.event_name.empty()) {
    parts.push_back("kernel event " + summary.event_name);
  }
  if (by_kernel && parts.empty()) parts.emplace_back("none");
  for (const auto& [sys_errno, processes] : summary.trigger_refusals) {
    const std::string why = sys_errno != 0
                                ? fmt::format(" because perf_event_open: {}", errno_name(sys_errno))
                                : std::string();
    parts.push_back(fmt::format("thread timers at {} Hz{}", summary.timer_hz, why));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string events_line(const Summary& summary) {
  std::vector<std::string> parts;
  for (const auto& [event, processes] : summary.unopened_events) {
    parts.push_back(
        fmt::format("{} could not be opened {} (perf_event_open: {}) and has no samples there",
                    event.first, in_processes(processes), errno_name(event.second)));
  }
  for (const auto& [sys_errno, processes] : summary.entry_refusals) {
    parts.push_back(
        fmt::format("thread timers bring threads back into the trace {} (perf_event_open: {})",
                    in_processes(processes), errno_name(sys_errno)));
  }
  for (const auto& [sys_errno, processes] : summary.timer_refusals) {
    parts.push_back(fmt::format("no thread timer could be had {} (timer_create: {})",
                                in_processes(processes), errno_name(sys_errno)));
  }
  return parts.empty() ? "" : fmt::format("Events: {}", fmt::join(parts, "; "));
}

std::string captured_line(const Summary& summary) {
  return fmt::format(
      "{} {:.3f} MB {} ({} samples, {:.1f} MB AUX, trace unit: {}, "
      "trigger: {})",
      summary.file_complete ? "Captured and wrote" : "Captured, but wrote only",
      static_cast<double>(summary.file_bytes) / kMiB, summary.file, summary.records.samples,
      static_cast<double>(summary.records.aux_bytes) / kMiB, summary.trace_unit,
      trigger_text(summary));
}

// Overflows of these kinds give no sample at all.
constexpr channel::Reason kNoSample[] = {
    channel::Reason::kBusyUnit, channel::Reason::kForeignThread, channel::Reason::kSingleStep,
    channel::Reason::kHandlersReplaced};

bool gives_no_sample(channel::Reason reason) {
  return std::find(std::begin(kNoSample), std::end(kNoSample), reason) != std::end(kNoSample);
}

uint64_t ended_by(const UnitTotals& units, channel::Reason reason) {
  return units.ended_by[static_cast<size_t>(reason)];
}

struct Loss {
  uint64_t count;
  const char* text;
};

// Each kind of loss is another thing and is told apart; only those that happened are named.
std::string losses_line(const Summary& summary) {
  const RecordTotals& records = summary.records;
  const UnitTotals& units = summary.units;
  const Loss losses[] = {
      {std::max(units.lost_samples, records.lost_records),
       "samples found no room in the data ring (-m gives it more)"},
      {ended_by(units, channel::Reason::kBusyUnit),
       "overflows came while the trace unit was at work on the one before (fewer with a lower -F, "
       "a "
       "larger -c or a smaller --aux-sample)"},
      {ended_by(units, channel::Reason::kForeignThread),
       "overflows of threads without thread-local storage"},
      {ended_by(units, channel::Reason::kSingleStep), "overflows of single-stepped code"},
      {ended_by(units, channel::Reason::kHandlersReplaced),
       "overflows of a process that replaced the trace unit's signal handlers"},
      {units.no_slot_overflows, "overflows of threads beyond the 64 of a process"},
      {records.aux_lost_bytes,
       "bytes of trace found no room in the AUX area (-m DATA,AUX gives it more)"},
      {records.short_snapshots,
       "snapshots were cut short or empty: their threads wrote over them while they were copied "
       "(-m DATA,AUX gives them room)"},
      {records.bad_records, "records refused (damaged by the program)"},
      {records.bad_rings, "rings found damaged"},
      {records.bad_ring_bytes, "bytes skipped in damaged rings"},
      {records.orphan_slots, "rings of unknown threads"},
      {records.side_band_lost, "side-band records"},
      {summary.refused_connections, "connections refused"},
  };
  std::vector<std::string> parts;
  for (const Loss& loss : losses) {
    if (loss.count != 0) parts.push_back(fmt::format("{} {}", loss.count, loss.text));
  }
  return parts.empty() ? "" : fmt::format("Lost: {}", fmt::join(parts, ", "));
}

// No loss: they have their samples, but not where they happened.
std::string late_line(const UnitTotals& units) {
  if (units.deferred == 0) return "";
  return fmt::format(
      "Late: {} overflows came while SIGTRAP was blocked; samples of theirs lie where that ended",
      units.deferred);
}

// Continuous trace has no windows: it stops where the program must run natively.
std::string continuous_line(const UnitTotals& units) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < channel::kReasonCount; ++i) {
    if (units.ended_by[i] == 0 || gives_no_sample(static_cast<channel::Reason>(i))) continue;
    parts.push_back(fmt::format("{} {}", units.ended_by[i], channel::kReasonNames[i]));
  }
  return fmt::format(
      "Continuous trace: {} branches written; left for native code: {}; {} superblocks "
      "translated",
      units.branches, parts.empty() ? "never" : fmt::format("{}", fmt::join(parts, ", ")),
      units.blocks_translated);
}

std::string counted_line(const UnitTotals& units) {
  if (units.counted_insns == 0) return "";
  return fmt::format(
      "Counted: {} instructions, {} branches; not counted is what ran before the trace unit was "
      "loaded, and natively: {} times, {:.3f} ms of CPU time",
      units.counted_insns, units.counted_branches, units.native_gaps,
      static_cast<double>(units.native_ns) / 1e6);
}

std::string windows_line(const UnitTotals& units) {
  std::vector<std::pair<uint64_t, size_t>> by_count;
  uint64_t windows = 0;
  for (size_t i = 0; i < channel::kReasonCount; ++i) {
    const auto reason = static_cast<channel::Reason>(i);
    if (gives_no_sample(reason)) continue;
    add_saturating(windows, units.ended_by[i]);
    if (units.ended_by[i] != 0 && reason != channel::Reason::kFull) {
      by_count.emplace_back(units.ended_by[i], i);
    }
  }
  if (by_count.empty()) return "";
  std::sort(by_count.rbegin(), by_count.rend());
  std::vector<std::string> parts;
  for (const auto& [count, index] : by_count) {
    parts.push_back(fmt::format("{} {}", count, channel::kReasonNames[index]));
  }
  const uint64_t full = units.ended_by[static_cast<size_t>(channel::Reason::kFull)];
  const double us_each = static_cast<double>(units.window_ns) / 1000 /
                         static_cast<double>(std::max<uint64_t>(windows, 1));
  return fmt::format(
      "Windows: {} in all, {} full, ended early: {}; {:.0f} us each; {} superblocks translated",
      windows, full, fmt::join(parts, ", "), us_each, units.blocks_translated);
}

std::string processes_line(const Summary& summary) {
  std::vector<std::string> parts;
  if (summary.coverage && !summary.coverage->missed.empty()) {
    parts.push_back("not sampled: " + not_sampled_text(*summary.coverage));
  }
  if (!summary.coverage) {
    for (const auto& [declined, processes] : summary.declined) {
      parts.push_back(fmt::format("not sampled: {} {}", processes, channel::name(declined)));
    }
    if (summary.processes == 0 && summary.declined.empty()) {
      parts.emplace_back("not sampled: no trace unit connected");
    }
  }
  if (summary.still_running != 0) {
    parts.push_back(
        fmt::format("{} still running, recorded up to the command's end", summary.still_running));
  }
  return parts.empty() ? "" : fmt::format("Processes: {}", fmt::join(parts, "; "));
}

std::string filters_line(const Summary& summary) {
  if (summary.unmapped_filters.empty()) return "";
  return fmt::format("Filters: no process had code of {} mapped, so nothing of it was traced",
                     fmt::join(summary.unmapped_filters, ", "));
}

}  // namespace

uint64_t overflows_without_sample(const UnitTotals& units) {
  uint64_t count = units.no_slot_overflows;
  for (const channel::Reason reason : kNoSample) add_saturating(count, ended_by(units, reason));
  return count;
}

std::vector<std::string> summary_lines(const Summary& summary) {
  std::vector<std::string> lines;
  const std::string side_band = summary.side_band_note.empty()
                                    ? ""
                                    : "Side-band made from /proc (" + summary.side_band_note +
                                          "): short-lived code is missed";
  for (const std::string& text :
       {captured_line(summary), losses_line(summary), late_line(summary.units),
        events_line(summary),
        summary.continuous ? continuous_line(summary.units) : windows_line(summary.units),
        counted_line(summary.units), processes_line(summary), filters_line(summary), side_band}) {
    if (!text.empty()) lines.push_back("[ auxtrail record: " + text + " ]");
  }
  return lines;
}

}  // namespace auxtrail::record
