// The totals of `auxtrail decode --stat`, as text and as JSON.
#pragma once

#include "cli/decode_outputs.h"
#include "cli/text_output.h"
#include "decode/branch_decoder.h"

namespace auxtrail::cli {

struct DecodeTotals {
  decode::DecodeSummary summary;
  PacketTotals packets;
  BranchTotals& branches;
  [[nodiscard]] uint64_t conditional() const {
    return branches.count(decode::BranchKind::kConditional) + summary.not_taken;
  }
};

void print_totals(TextOutput& out, const DecodeTotals& totals);
void print_totals_json(TextOutput& out, const DecodeTotals& totals);

}  // namespace auxtrail::cli
