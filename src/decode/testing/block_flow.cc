#include "decode/testing/block_flow.h"

#include <fmt/format.h>

#include <algorithm>

namespace auxtrail::decode::testing {
namespace {

bool same_event(const flow::Event& left, const flow::Event& right) {
  return left.kind == right.kind && left.ip_suppressed == right.ip_suppressed &&
         left.status_update == right.status_update && left.ip == right.ip && left.at == right.at &&
         left.payload == right.payload && left.payload2 == right.payload2 &&
         left.small == right.small && left.small2 == right.small2 && left.flag == right.flag &&
         left.flag2 == right.flag2 && left.flag3 == right.flag3 && left.mode == right.mode;
}

bool same_time(const flow::Event& left, const flow::Event& right) {
  return left.has_tsc == right.has_tsc && left.tsc == right.tsc &&
         left.lost_mtc == right.lost_mtc && left.lost_cyc == right.lost_cyc;
}

// What differs; nullptr: nothing.
const char* difference(const BlockRecord& left, const BlockRecord& right,
                       const BlockComparison& how) {
  if (left.kind != right.kind) return "kinds differ";
  switch (left.kind) {
    case BlockRecordKind::kRun:
      if (left.first_ip != right.first_ip || left.last_ip != right.last_ip ||
          left.instructions != right.instructions) {
        return "runs differ";
      }
      if (left.mode != right.mode) return "execution modes differ";
      if (left.is_speculative != right.is_speculative) return "one run is speculative";
      return how.times && left.time != right.time ? "times of runs differ" : nullptr;
    case BlockRecordKind::kEvent:
      if (!same_event(left.event, right.event)) return "events differ";
      if (left.resumed != right.resumed) return "one event says resumed";
      return same_time(left.event, right.event) ? nullptr : "times of events differ";
    case BlockRecordKind::kError:
      if (left.error != right.error) return "errors differ";
      return how.error_offsets && left.offset != right.offset ? "offsets of errors differ"
                                                              : nullptr;
  }
  return nullptr;
}

}  // namespace

std::string text(const BlockRecord& record) {
  switch (record.kind) {
    case BlockRecordKind::kRun:
      return fmt::format("{:#x}..{:#x}, {} instructions, mode {}{}, time {:#x}", record.first_ip,
                         record.last_ip, record.instructions, static_cast<int>(record.mode),
                         record.is_speculative ? ", speculative" : "", record.time);
    case BlockRecordKind::kEvent: {
      const flow::Event& event = record.event;
      return fmt::format(
          "event {}{}{}{} ip {:#x} at {:#x} {:#x} {:#x} {} {} {}{}{} mode {}, time {}{:#x} -{} -{}",
          static_cast<int>(event.kind), event.ip_suppressed ? " no ip" : "",
          event.status_update ? " status" : "", record.resumed ? " resumed" : "", event.ip,
          event.at, event.payload, event.payload2, event.small, event.small2, int{event.flag},
          int{event.flag2}, int{event.flag3}, static_cast<int>(event.mode),
          event.has_tsc ? "" : "none ", event.tsc, event.lost_mtc, event.lost_cyc);
    }
    case BlockRecordKind::kError:
      return fmt::format("error {} at offset {:#x}", static_cast<int>(record.error), record.offset);
  }
  return {};
}

void BlockFlow::clear() {
  records_.clear();
  is_open_ = false;
  offset_ = ~uint64_t{0};
  free_pieces_ = 0;
  safe_records_ = 0;
}

void BlockFlow::run(const Piece& piece) {
  if (!is_open_ || records_.back().mode != piece.mode ||
      records_.back().is_speculative != piece.is_speculative) {
    BlockRecord record;
    record.first_ip = piece.first_ip;
    record.mode = piece.mode;
    record.is_speculative = piece.is_speculative;
    records_.push_back(record);
  }
  records_.back().last_ip = piece.last_ip;
  records_.back().instructions += piece.instructions;
  records_.back().time = piece.time;
  is_open_ = !piece.ends_in_branch;
}

void BlockFlow::event(const flow::Event& event, bool resumed) {
  // A PSB+ that says that tracing is on, or off: some decoders tell it, others know it.
  if (event.status_update &&
      (event.kind == flow::EventKind::kEnabled || event.kind == flow::EventKind::kDisabled)) {
    return;
  }
  BlockRecord record;
  record.kind = BlockRecordKind::kEvent;
  record.event = event;
  record.resumed = resumed;
  records_.push_back(record);
  is_open_ = false;
}

void BlockFlow::error(flow::Status status, uint64_t offset) {
  BlockRecord record;
  record.kind = BlockRecordKind::kError;
  record.error = status;
  record.offset = offset;
  records_.push_back(record);
  is_open_ = false;
  free_pieces_ = 0;
}

bool BlockFlow::progress(uint64_t offset) {
  if (offset != offset_) {
    offset_ = offset;
    free_pieces_ = 0;
    safe_records_ = records_.size();
    return true;
  }
  if (++free_pieces_ < kMaxFreePieces) return true;
  records_.resize(safe_records_);
  error(flow::Status::kEndlessLoop, offset);
  return false;
}

std::optional<BlockDifference> compare_blocks(const std::vector<BlockRecord>& left,
                                              const std::vector<BlockRecord>& right,
                                              const BlockComparison& how) {
  const size_t common = std::min(left.size(), right.size());
  for (size_t i = 0; i < common; ++i) {
    // Where a circle begins is each decoder's own view.
    if (left[i].error == flow::Status::kEndlessLoop ||
        right[i].error == flow::Status::kEndlessLoop) {
      return std::nullopt;
    }
    if (const char* what = difference(left[i], right[i], how)) return BlockDifference{i, what};
    if (left[i].kind == BlockRecordKind::kError && !how.beyond_errors) return std::nullopt;
  }
  if (left.size() == right.size()) return std::nullopt;
  return BlockDifference{common, "one flow ends"};
}

}  // namespace auxtrail::decode::testing
