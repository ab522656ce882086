#include "cli/decode_totals.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace auxtrail::cli {
namespace {

using decode::BranchKind;
using decode::ErrorCause;

// Calls `use(kind)` for every kind of branch, markers too.
template <class Use>
void for_each_kind(const Use& use) {
  for (size_t i = 0; i < static_cast<size_t>(BranchKind::kCount); ++i) {
    use(static_cast<BranchKind>(i));
  }
}

}  // namespace

void print_totals(TextOutput& out, const DecodeTotals& totals) {
  const auto row = [&out](std::string_view name, uint64_t value) {
    out.print("{:<36} {:>16}\n", name, value);
  };
  const decode::DecodeSummary& sum = totals.summary;
  row("bytes of trace", sum.bytes);
  row("TNT bits", totals.packets.tnt_bits);
  row("TIP packets", totals.packets.tips);
  row("instructions", sum.instructions);
  row("blocks", sum.blocks);
  row("branches taken", sum.branches);
  for_each_kind([&](BranchKind kind) {
    const uint64_t count = totals.branches.count(kind);
    if (count != 0 && kind < BranchKind::kTraceBegin) row(fmt::format("  {}", name(kind)), count);
  });
  row("branches not taken", sum.not_taken);
  row("conditional branches, taken or not", totals.conditional());
  row("gaps", sum.gaps);
  row("overflows", sum.overflows);
  row("decode errors", sum.error_count());
  for (size_t i = 0; i < decode::kErrorCauseCount; ++i) {
    if (sum.errors[i] == 0) continue;
    row(fmt::format("  {}", name(static_cast<ErrorCause>(i))), sum.errors[i]);
  }
  out.print("{:<36} {:016x}\n", "hash of all branches taken", totals.branches.hash());
}

void print_totals_json(TextOutput& out, const DecodeTotals& totals) {
  using Json = nlohmann::ordered_json;
  const decode::DecodeSummary& sum = totals.summary;
  Json kinds = Json::object();
  for_each_kind(
      [&](BranchKind kind) { kinds[std::string(name(kind))] = totals.branches.count(kind); });
  Json errors = Json::object();
  for (size_t i = 0; i < decode::kErrorCauseCount; ++i) {
    errors[std::string(name(static_cast<ErrorCause>(i)))] = sum.errors[i];
  }
  const Json json = {{"bytes", sum.bytes},
                     {"tnt_bits", totals.packets.tnt_bits},
                     {"tip_packets", totals.packets.tips},
                     {"instructions", sum.instructions},
                     {"blocks", sum.blocks},
                     {"branches", sum.branches},
                     {"branches_not_taken", sum.not_taken},
                     {"conditional_branches", totals.conditional()},
                     {"branches_by_kind", kinds},
                     {"gaps", sum.gaps},
                     {"overflows", sum.overflows},
                     {"decode_errors", sum.error_count()},
                     {"decode_errors_by_cause", errors},
                     {"branch_hash", fmt::format("{:016x}", totals.branches.hash())}};
  out.print("{}\n", json.dump(2));
}

}  // namespace auxtrail::cli
