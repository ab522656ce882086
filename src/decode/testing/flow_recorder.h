// FlowRecorder: what a BranchDecoder told its consumer, as a list that can be compared and shown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decode/branch_decoder.h"

namespace auxtrail::decode::testing {

enum class FlowRecordKind : uint8_t { kBranch, kNotTaken, kBlock, kGap, kError };

struct FlowRecord {
  FlowRecordKind kind = FlowRecordKind::kBranch;
  BranchKind branch = BranchKind::kJump;
  GapKind gap = GapKind::kDisabled;
  ErrorCause cause = ErrorCause::kInternal;
  bool ends_trace = false;
  // Of a truth: decoders may know it or not (the branch before a loss).
  bool is_optional = false;
  uint64_t from = 0;    // kNotTaken: the branch; kBlock: first_ip; kError: ip
  uint64_t to = 0;      // kBlock: last_ip
  uint64_t number = 0;  // kGap, kError: offset; kBlock: instructions

  bool operator==(const FlowRecord&) const = default;
};

std::string text(const FlowRecord& record);

class FlowRecorder : public FlowConsumer {
 public:
  explicit FlowRecorder(bool with_blocks) : with_blocks_(with_blocks) {}

  void clear() { records_.clear(); }
  [[nodiscard]] const std::vector<FlowRecord>& records() const { return records_; }
  [[nodiscard]] std::vector<FlowRecord>& records() { return records_; }

  void on_branch(const Branch& branch) override;
  void on_not_taken(uint64_t ip) override;
  void on_block(const Block& block) override;
  void on_gap(const Gap& gap) override;
  void on_error(const DecodeError& error) override;

 private:
  bool with_blocks_;
  std::vector<FlowRecord> records_;
};

}  // namespace auxtrail::decode::testing
