#include "decode/testing/block_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace auxtrail::decode::testing {
namespace {

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
    case BlockRecordKind::kSync:
      return left.offset != right.offset ? "PSBs differ" : nullptr;
    case BlockRecordKind::kError:
      if (left.error != right.error) return "errors differ";
      return how.error_offsets && left.offset != right.offset ? "offsets of errors differ"
                                                              : nullptr;
  }
  return nullptr;
}

}  // namespace

namespace {

// Of the kinds that have it.
uint64_t at(const flow::Event& event) {
  const bool has_at =
      event.kind == flow::EventKind::kAsyncDisabled || event.kind == flow::EventKind::kAsyncBranch;
  return has_at ? event.at : 0;
}

}  // namespace

bool same_event(const flow::Event& left, const flow::Event& right) {
  return left.kind == right.kind && left.ip_suppressed == right.ip_suppressed &&
         left.status_update == right.status_update && left.ip == right.ip &&
         at(left) == at(right) && left.payload == right.payload &&
         left.payload2 == right.payload2 && left.small == right.small &&
         left.small2 == right.small2 && left.flag == right.flag && left.flag2 == right.flag2 &&
         left.flag3 == right.flag3 && left.mode == right.mode;
}

bool same_time(const flow::Event& left, const flow::Event& right) {
  return left.has_tsc == right.has_tsc && (!left.has_tsc || left.tsc == right.tsc) &&
         left.lost_mtc == right.lost_mtc && left.lost_cyc == right.lost_cyc;
}

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
    case BlockRecordKind::kSync:
      return fmt::format("PSB at offset {:#x}", record.offset);
    case BlockRecordKind::kError:
      return fmt::format("error {} at offset {:#x}", static_cast<int>(record.error), record.offset);
  }
  return {};
}

void BlockFlow::clear() {
  records_.clear();
  power_events_.clear();
  is_open_ = false;
  offset_ = ~uint64_t{0};
  free_pieces_ = 0;
  safe_records_ = 0;
  mode_ = flow::ExecMode::kUnknown;
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
  mode_ = piece.mode;
  is_open_ = !piece.ends_in_branch;
}

void BlockFlow::event(const flow::Event& event, bool resumed) {
  // A MODE.Exec that says nothing new is an event to libipt 2.0.5 alone.
  if (event.kind == flow::EventKind::kExecMode && std::exchange(mode_, event.mode) == event.mode) {
    return;
  }
  // What a PSB+ says again: decoders tell it in different places.
  if (event.status_update) return;
  // Decoders tell of a C-state now or when it is left.
  if (event.kind == flow::EventKind::kPwre || event.kind == flow::EventKind::kPwrx) {
    power_events_.push_back(event);
    return;
  }
  BlockRecord record;
  record.kind = BlockRecordKind::kEvent;
  record.event = event;
  record.resumed = resumed;
  records_.push_back(record);
  is_open_ = false;
}

void BlockFlow::sync(uint64_t offset) {
  BlockRecord record;
  record.kind = BlockRecordKind::kSync;
  record.offset = offset;
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

namespace {

bool is_error(const std::vector<BlockRecord>& records, size_t index) {
  return index < records.size() && records[index].kind == BlockRecordKind::kError;
}
bool is_end(const std::vector<BlockRecord>& records, size_t index) {
  return index >= records.size() || records[index].kind == BlockRecordKind::kSync;
}
bool is_circle(const std::vector<BlockRecord>& records, size_t index) {
  return is_error(records, index) && records[index].error == flow::Status::kEndlessLoop;
}

// From the kSync at (left_at, right_at) on.
std::optional<BlockDifference> compare_segments(const std::vector<BlockRecord>& left, size_t l,
                                                const std::vector<BlockRecord>& right, size_t r,
                                                BlockComparison& how) {
  for (++l, ++r;; ++l, ++r) {
    if (is_end(left, l) && is_end(right, r)) return std::nullopt;
    // Where a circle begins is each decoder's own view.
    if (is_circle(left, l) || is_circle(right, r)) return std::nullopt;
    if (is_end(left, l) || is_end(right, r)) return BlockDifference{l, r, "one flow ends"};
    if (const char* what = difference(left[l], right[r], how)) {
      const char* known = how.passes != nullptr ? how.passes(left[l], right[r]) : nullptr;
      if (known == nullptr) return BlockDifference{l, r, what};
      if (how.passed == nullptr) how.passed = known;
    }
    if (is_error(left, l)) return std::nullopt;
  }
}

}  // namespace

std::optional<BlockDifference> compare_blocks(const std::vector<BlockRecord>& left,
                                              const std::vector<BlockRecord>& right,
                                              BlockComparison& how) {
  std::optional<BlockDifference> first;
  size_t r = 0;
  for (size_t l = 0; l < left.size(); ++l) {
    if (left[l].kind != BlockRecordKind::kSync) continue;
    while (r < right.size() &&
           (right[r].kind != BlockRecordKind::kSync || right[r].offset < left[l].offset)) {
      ++r;
    }
    if (r == right.size()) break;
    if (right[r].offset != left[l].offset) continue;
    auto found = compare_segments(left, l, right, r, how);
    if (!found) continue;
    // What nobody can explain comes first.
    if (how.explains == nullptr || !how.explains(*found)) return found;
    if (!first) first = found;
  }
  return first;
}

}  // namespace auxtrail::decode::testing
