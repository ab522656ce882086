#include "analysis/full_trace.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "pt/packet_reader.h"

namespace auxtrail::analysis {
namespace {

constexpr uint64_t kEndOfTime = std::numeric_limits<uint64_t>::max();
// For the windows of all queues together.
constexpr size_t kWindowsBytes = size_t{64} << 20;
constexpr size_t kMaxWindowBytes = size_t{1} << 20;
constexpr size_t kMinWindowBytes = size_t{64} << 10;

bool is_snapshot(perfdata::Reader& reader) {
  const auto& info = reader.auxtrace_info();
  return info && info->intel_pt && info->intel_pt->snapshot_mode != 0;
}

decode::TscToNs clock_of(perfdata::Reader& reader) {
  const auto& info = reader.auxtrace_info();
  if (!info || !info->intel_pt || info->intel_pt->time_mult == 0) return {};
  const perfdata::IntelPtInfo& words = *info->intel_pt;
  return {std::min<uint64_t>(words.time_shift, 63), words.time_mult, words.time_zero};
}

// The time of the segment's first TSC packet.
uint64_t start_of(const TraceSegment& segment, const decode::TscToNs& clock) {
  for (const auto piece : segment.pieces) {
    pt::PacketReader reader(piece);
    if (!reader.sync_forward()) continue;
    const auto tsc = pt::first_tsc(piece.subspan(reader.offset()));
    if (tsc) return clock.ns(*tsc);
  }
  return segment.reference != 0 ? clock.ns(segment.reference) : 0;
}

}  // namespace

// One queue: its segments one after the other, and whose code it is at each time.
class FullTrace::Runner : public decode::CodeTimeline, public decode::FlowConsumer {
 public:
  Runner(const TraceQueue& queue, Recording& recording, decode::BranchDecoder& decoder,
         size_t window_bytes)
      : queue_(queue),
        recording_(recording),
        decoder_(decoder),
        clock_(clock_of(recording.reader())),
        window_bytes_(window_bytes),
        pid_(queue.tid != -1 ? recording.pid_of(queue.tid) : -1),
        tid_(queue.tid) {
    if (!queue_.segments.empty()) time_ns_ = start_of(queue_.segments.front(), clock_);
  }

  [[nodiscard]] uint64_t time_ns() const { return stream_ ? stream_->time_ns() : time_ns_; }
  [[nodiscard]] decode::DecodeSummary summary() const {
    decode::DecodeSummary sum = done_;
    if (stream_) sum += stream_->summary();
    return sum;
  }

  // False when all segments are decoded.
  bool run(uint64_t until_ns, TraceVisitor& visitor) {
    visitor_ = &visitor;
    if (!stream_ && !open_next()) return false;
    if (stream_->run(until_ns)) return true;
    done_ += stream_->summary();
    time_ns_ = stream_->time_ns();
    stream_.reset();
    return open_next();
  }

  View at(uint64_t time_ns) override {
    const uint64_t next_switch_ns = take_switch(time_ns);
    layout_ = recording_.spaces().layout(pid_, time_ns);
    const uint64_t next_change_ns = recording_.spaces().next_change_ns(pid_, time_ns);
    if (code_.id != layout_->id) code_ = image::make_code_map(*layout_, recording_.dsos());
    return {&code_, std::min(next_switch_ns, next_change_ns)};
  }

  [[nodiscard]] unsigned wants() const override {
    return decode::kWantsBranches | decode::kWantsBlocks;
  }
  void on_branch(const decode::Branch& branch) override { visitor_->on_branch(here(), branch); }
  void on_block(const decode::Block& block) override { visitor_->on_block(here(), block); }
  void on_error(const decode::DecodeError& error) override { visitor_->on_error(here(), error); }

 private:
  bool open_next() {
    if (next_segment_ == queue_.segments.size()) return false;
    const TraceSegment& segment = queue_.segments[next_segment_++];
    decode::StreamOptions options;
    options.clock = clock_;
    options.start_ns = std::max(time_ns_, start_of(segment, clock_));
    options.window_bytes = window_bytes_;
    stream_ = decoder_.open(segment.pieces, *this, *this, options);
    return true;
  }

  // In a CPU's queue: which thread runs at that time. When that changes next.
  uint64_t take_switch(uint64_t time_ns) {
    if (queue_.tid != -1) return kEndOfTime;
    const auto& switches = recording_.switches(queue_.cpu);
    const auto next = std::partition_point(
        switches.begin(), switches.end(),
        [time_ns](const CpuSwitch& change) { return change.time_ns <= time_ns; });
    if (next != switches.begin()) {
      pid_ = std::prev(next)->pid;
      tid_ = std::prev(next)->tid;
    }
    return next == switches.end() ? kEndOfTime : next->time_ns;
  }

  [[nodiscard]] TracePosition here() const { return {pid_, tid_, queue_.cpu, time_ns(), *layout_}; }

  const TraceQueue& queue_;
  Recording& recording_;
  decode::BranchDecoder& decoder_;
  decode::TscToNs clock_;
  size_t window_bytes_;
  int32_t pid_;
  int32_t tid_;
  std::shared_ptr<const image::Layout> layout_ = std::make_shared<const image::Layout>();
  image::CodeMap code_;
  size_t next_segment_ = 0;
  std::unique_ptr<decode::TraceStream> stream_;
  TraceVisitor* visitor_ = nullptr;
  uint64_t time_ns_ = 0;
  decode::DecodeSummary done_;
};

bool has_full_trace(perfdata::Reader& reader) {
  bool found = false;
  reader.for_each_raw([&found](const perfdata::DataRecord& record) {
    found = record.record.type == abi::kRecordAuxtrace && !record.payload.empty();
    return !found;
  });
  return found;
}

FullTrace::FullTrace(Recording& recording, decode::BranchDecoder& decoder)
    : queues_(is_snapshot(recording.reader())) {
  recording.reader().for_each_raw([this](const perfdata::DataRecord& record) {
    const auto auxtrace = perfdata::parse_auxtrace(record.record);
    if (auxtrace) queues_.add(*auxtrace, record.payload);
    return true;
  });
  const size_t count = std::max<size_t>(queues_.queues().size(), 1);
  const size_t window_bytes = std::clamp(kWindowsBytes / count, kMinWindowBytes, kMaxWindowBytes);
  for (const auto& [index, queue] : queues_.queues()) {
    runners_.push_back(std::make_unique<Runner>(queue, recording, decoder, window_bytes));
  }
}

FullTrace::~FullTrace() = default;

void FullTrace::advance(uint64_t until_ns, TraceVisitor& visitor) {
  const auto is_earlier = [](const auto& a, const auto& b) { return a->time_ns() < b->time_ns(); };
  while (!runners_.empty() && visitor.wants_more()) {
    const auto first = std::min_element(runners_.begin(), runners_.end(), is_earlier);
    if ((*first)->time_ns() > until_ns) return;
    uint64_t stop_ns = until_ns;  // where another one is the first
    for (const auto& other : runners_) {
      if (other != *first) stop_ns = std::min(stop_ns, other->time_ns());
    }
    if ((*first)->run(stop_ns, visitor)) continue;
    done_ += (*first)->summary();
    runners_.erase(first);
  }
}

void FullTrace::finish(TraceVisitor& visitor) { advance(kEndOfTime, visitor); }

decode::DecodeSummary FullTrace::decoded() const {
  decode::DecodeSummary sum = done_;
  for (const auto& runner : runners_) sum += runner->summary();
  return sum;
}

}  // namespace auxtrail::analysis
