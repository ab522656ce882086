#include "analysis/trace_queues.h"

#include <algorithm>
#include <numeric>

#include "pt/packet_reader.h"

namespace auxtrail::analysis {
namespace {

using Bytes = std::span<const std::byte>;

constexpr size_t kPsbBytes = 16;
constexpr uint64_t kMaxPadding = 7;  // records are padded to 8 bytes

// The offset of the next PSB at or behind `from`.
std::optional<size_t> next_psb(Bytes trace, size_t from) {
  if (from >= trace.size()) return std::nullopt;
  pt::PacketReader reader(trace);
  reader.seek(from);
  if (!reader.sync_forward()) return std::nullopt;
  return reader.offset();
}

// The last PSB with enough behind it to tell it from others: its TSC packet.
std::optional<size_t> last_psb(Bytes trace) {
  constexpr size_t kTscBytes = 8;
  std::optional<size_t> last;
  for (auto psb = next_psb(trace, 0); psb; psb = next_psb(trace, *psb + kPsbBytes)) {
    if (trace.size() - *psb < kPsbBytes + kTscBytes + kMaxPadding) break;
    last = psb;
  }
  return last;
}

void trim_tail(TraceSegment& segment, uint64_t bytes) {
  Bytes& last = segment.pieces.back();
  last = last.first(last.size() - std::min<size_t>(bytes, last.size()));
  if (last.empty()) segment.pieces.pop_back();
}

}  // namespace

uint64_t TraceSegment::size_bytes() const {
  return std::accumulate(pieces.begin(), pieces.end(), uint64_t{0},
                         [](uint64_t sum, Bytes piece) { return sum + piece.size(); });
}

std::optional<SnapshotOverlap> find_overlap(Bytes previous, Bytes next) {
  const auto psb = last_psb(previous);
  if (!psb) return std::nullopt;
  Bytes tail = previous.subspan(*psb);
  size_t padding = 0;
  while (padding < kMaxPadding && tail.back() == std::byte{0}) {
    tail = tail.first(tail.size() - 1);
    ++padding;
  }
  for (auto at = next_psb(next, 0); at; at = next_psb(next, *at + kPsbBytes)) {
    if (tail.size() > next.size() - *at) break;
    const auto same = next.subspan(*at, tail.size());
    if (std::equal(tail.begin(), tail.end(), same.begin())) {
      return SnapshotOverlap{*at + tail.size(), padding};
    }
  }
  return std::nullopt;
}

void TraceQueues::add(const perfdata::AuxtraceRecord& record, Bytes payload) {
  ++statistics_.buffers;
  statistics_.trace_bytes += payload.size();
  TraceQueue& queue = queues_[record.index];
  queue.index = record.index;
  queue.tid = static_cast<int32_t>(record.tid);
  queue.cpu = static_cast<int32_t>(record.cpu);
  if (payload.empty()) return;
  if (snapshots_) return add_snapshot(queue, record, payload);
  if (!follows(queue, record)) {
    queue.segments.push_back({{}, record.offset, record.reference});
  }
  queue.segments.back().pieces.push_back(payload);
}

// Whether the record goes on where the queue ends, whose padding is cut then.
bool TraceQueues::follows(TraceQueue& queue, const perfdata::AuxtraceRecord& record) {
  if (queue.segments.empty()) return false;
  TraceSegment& last = queue.segments.back();
  const uint64_t end = last.offset + last.size_bytes();
  if (end >= record.offset && end - record.offset <= kMaxPadding) {
    trim_tail(last, end - record.offset);
    return true;
  }
  ++statistics_.gaps;
  if (record.offset > end) statistics_.lost_bytes += record.offset - end;
  return false;
}

void TraceQueues::add_snapshot(TraceQueue& queue, const perfdata::AuxtraceRecord& record,
                               Bytes payload) {
  Bytes& last = last_snapshots_[record.index];
  const auto overlap = queue.segments.empty() ? std::nullopt : find_overlap(last, payload);
  last = payload;
  if (!overlap) {
    if (!queue.segments.empty()) ++statistics_.gaps;
    queue.segments.push_back({{payload}, record.offset, record.reference});
    return;
  }
  TraceSegment& segment = queue.segments.back();
  statistics_.overlap_bytes += overlap->known_bytes;
  if (overlap->known_bytes == payload.size()) return;
  trim_tail(segment, overlap->padding_bytes);
  segment.pieces.push_back(payload.subspan(overlap->known_bytes));
}

}  // namespace auxtrail::analysis
