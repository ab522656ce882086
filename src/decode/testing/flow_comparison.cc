#include "decode/testing/flow_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace auxtrail::decode::testing {
namespace {

using Records = std::vector<FlowRecord>;

bool agrees(const FlowRecord& truth, const FlowRecord& seen) {
  if (truth.kind != seen.kind) return false;
  switch (truth.kind) {
    case FlowRecordKind::kGap:
      // Where the flow was when packets were lost, only the walk knows.
      return truth.gap == seen.gap && truth.to == seen.to &&
             (truth.gap == GapKind::kOverflow || truth.from == seen.from);
    case FlowRecordKind::kBranch:
      return truth.branch == seen.branch && truth.from == seen.from && truth.to == seen.to &&
             truth.ends_trace == seen.ends_trace;
    default:
      return truth.from == seen.from;
  }
}

bool stays_in_filter(const DifferentialCase& made, const Difference& difference,
                     const Records& left, const Records& right) {
  if (made.config.model != 0x5e || made.config.filter_end == 0) return false;
  if (difference.left >= left.size() || difference.right >= right.size()) return false;
  const FlowRecord& branch = left[difference.left];
  const FlowRecord& seen = right[difference.right];
  return (seen.branch == BranchKind::kCall || seen.branch == BranchKind::kJump) &&
         seen.ends_trace && seen.to == 0 && branch.from == seen.from && !branch.ends_trace &&
         made.config.filter_start <= branch.to && branch.to <= made.config.filter_end;
}

bool swallows_jump(const DifferentialCase& made, const Difference& difference, const Records& left,
                   const Records&) {
  if (!made.walk.encoder.ptw_ip || difference.left >= left.size()) return false;
  const BranchKind kind = left[difference.left].branch;
  return kind == BranchKind::kCall || kind == BranchKind::kJump;
}

bool is_vmentry(const DifferentialCase& made, const Difference& difference, const Records& left,
                const Records& right) {
  if (made.config.model != 0x5e || difference.right >= right.size()) return false;
  const FlowRecord& seen = right[difference.right];
  if (seen.branch != BranchKind::kFar || !seen.ends_trace) return false;
  // The jump before it stands in the middle of libipt's block then.
  for (size_t i = difference.left; i < left.size() && i < difference.left + 2; ++i) {
    if (left[i].branch == BranchKind::kTraceEnd && left[i].from == seen.from) return true;
  }
  return false;
}

bool begins_in_loss(const DifferentialCase&, const Difference& difference, const Records& left,
                    const Records& right) {
  const auto lost = [](const Records& records, size_t at) {
    return at < records.size() && records[at].kind == FlowRecordKind::kGap &&
           records[at].gap == GapKind::kOverflow;
  };
  return lost(left, difference.left) && lost(right, difference.right + 1) &&
         right[difference.right].kind == FlowRecordKind::kBranch &&
         right[difference.right].branch == BranchKind::kTraceBegin;
}

struct Explanation {
  const char* name;
  const char* reason;
  bool (*holds)(const DifferentialCase&, const Difference&, const Records&, const Records&);
};
constexpr std::array kExplanations = {
    Explanation{
        "SKL014 within the filter",
        "libipt's block decoder (all versions), when it ends blocks at calls and jumps, takes "
        "the first direct branch for the one that left the filter, wherever it leads",
        stays_in_filter},
    Explanation{
        "jump before a PTWRITE",
        "libipt's block decoder (all versions) takes a PTWRITE whose PTW has an IP into the "
        "block of the direct call or jump before it: that branch is not at a block's end",
        swallows_jump},
    Explanation{"lost right behind a PSB+",
                "the native decoder says that tracing was on where the PSB+ told, though packets "
                "were lost before anything was executed there",
                begins_in_loss},
    Explanation{"SKD022",
                "an interrupt right at a VMRESUME that switches tracing off looks like the erratum",
                is_vmentry},
};

}  // namespace

std::optional<Difference> compare_flows(const Records& left, const Records& right) {
  const size_t common = std::min(left.size(), right.size());
  for (size_t i = 0; i < common; ++i) {
    if (!(left[i] == right[i])) return Difference{i, i, "records differ"};
  }
  if (left.size() == right.size()) return std::nullopt;
  return Difference{common, common, "one flow ends"};
}

std::optional<Difference> compare_with_truth(const SimulatedTrace& trace, const Records& flow,
                                             const DecodeSummary& summary) {
  size_t next = 0;
  for (size_t i = 0; i < trace.truth.size(); ++i) {
    const FlowRecord& truth = trace.truth[i];
    if (next < flow.size() && agrees(truth, flow[next])) {
      ++next;
    } else if (!truth.is_optional) {
      return Difference{i, next, next < flow.size() ? "not what happened" : "the flow ends"};
    }
  }
  if (next < flow.size() && !trace.open_end) {
    return Difference{trace.truth.size(), next, "more than what happened"};
  }
  if (trace.is_complete && summary.instructions != trace.instructions) {
    return Difference{
        trace.truth.size(), next,
        fmt::format("{} instructions instead of {}", summary.instructions, trace.instructions)};
  }
  return std::nullopt;
}

std::optional<Difference> compare_summaries(const DecodeSummary& left, const DecodeSummary& right) {
  const auto differ = [](std::string_view what, uint64_t one, uint64_t other) {
    return Difference{0, 0, fmt::format("{}: {} and {}", what, one, other)};
  };
  if (left.instructions != right.instructions)
    return differ("instructions", left.instructions, right.instructions);
  if (left.branches != right.branches) return differ("branches", left.branches, right.branches);
  if (left.not_taken != right.not_taken)
    return differ("not taken", left.not_taken, right.not_taken);
  if (left.gaps != right.gaps) return differ("gaps", left.gaps, right.gaps);
  if (left.overflows != right.overflows)
    return differ("overflows", left.overflows, right.overflows);
  for (size_t i = 0; i < kErrorCauseCount; ++i) {
    if (left.errors[i] == right.errors[i]) continue;
    return differ(name(static_cast<ErrorCause>(i)), left.errors[i], right.errors[i]);
  }
  if (left.first_ip != right.first_ip)
    return differ("first ip", left.first_ip.value_or(0), right.first_ip.value_or(0));
  if (left.final_ip != right.final_ip)
    return differ("final ip", left.final_ip.value_or(0), right.final_ip.value_or(0));
  if (left.ends_open != right.ends_open)
    return differ("ends open", left.ends_open ? 1 : 0, right.ends_open ? 1 : 0);
  return std::nullopt;
}

const char* explanation(const DifferentialCase& made, const Difference& difference,
                        const Records& left, const Records& right) {
  for (const Explanation& entry : kExplanations) {
    if (entry.holds(made, difference, left, right)) return entry.name;
  }
  return nullptr;
}

std::string explanations() {
  std::string text;
  for (const Explanation& entry : kExplanations) {
    text += fmt::format("{}: {}\n", entry.name, entry.reason);
  }
  return text;
}

}  // namespace auxtrail::decode::testing
