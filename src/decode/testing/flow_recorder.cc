#include "decode/testing/flow_recorder.h"

#include <fmt/format.h>

namespace auxtrail::decode::testing {

std::string text(const FlowRecord& record) {
  switch (record.kind) {
    case FlowRecordKind::kBranch:
      return fmt::format("{:<8} {:#x} -> {:#x}{}{}", name(record.branch), record.from, record.to,
                         record.ends_trace ? " (ends)" : "", record.is_optional ? " ?" : "");
    case FlowRecordKind::kNotTaken:
      return fmt::format("not taken {:#x}{}", record.from, record.is_optional ? " ?" : "");
    case FlowRecordKind::kBlock:
      return fmt::format("block {:#x}..{:#x}, {} instructions", record.from, record.to,
                         record.number);
    case FlowRecordKind::kGap:
      return fmt::format("gap ({}) {:#x} .. {:#x} at offset {:#x}",
                         record.gap == GapKind::kDisabled   ? "disabled"
                         : record.gap == GapKind::kOverflow ? "overflow"
                                                            : "error",
                         record.from, record.to, record.number);
    case FlowRecordKind::kError:
      return fmt::format("error: {} at offset {:#x}, ip {:#x}", name(record.cause), record.number,
                         record.from);
  }
  return {};
}

void FlowRecorder::on_branch(const Branch& branch) {
  FlowRecord record;
  record.branch = branch.kind;
  record.from = branch.from;
  record.to = branch.to;
  record.ends_trace = branch.ends_trace;
  records_.push_back(record);
}

void FlowRecorder::on_not_taken(uint64_t ip) {
  FlowRecord record;
  record.kind = FlowRecordKind::kNotTaken;
  record.from = ip;
  records_.push_back(record);
}

void FlowRecorder::on_block(const Block& block) {
  if (!with_blocks_) return;
  FlowRecord record;
  record.kind = FlowRecordKind::kBlock;
  record.from = block.first_ip;
  record.to = block.last_ip;
  record.number = block.instructions;
  records_.push_back(record);
}

void FlowRecorder::on_gap(const Gap& gap) {
  FlowRecord record;
  record.kind = FlowRecordKind::kGap;
  record.gap = gap.kind;
  record.from = gap.from_ip;
  record.to = gap.to_ip;
  record.number = gap.offset;
  records_.push_back(record);
}

void FlowRecorder::on_error(const DecodeError& error) {
  FlowRecord record;
  record.kind = FlowRecordKind::kError;
  record.cause = error.cause;
  record.from = error.ip;
  record.number = error.offset;
  records_.push_back(record);
}

}  // namespace auxtrail::decode::testing
