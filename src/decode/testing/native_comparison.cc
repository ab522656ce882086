#include "decode/testing/native_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "decode/edge_counts.h"
#include "decode/libipt_decoder.h"
#include "decode/native_decoder.h"
#include "decode/parallel_decoder.h"
#include "decode/psb_border.h"
#include "decode/testing/flow_comparison.h"
#include "decode/testing/random.h"
#include "pt/packet_reader.h"

namespace auxtrail::decode::testing {
namespace {

using Records = std::vector<FlowRecord>;

// What a consumer was told, one list for each kind: only within a kind the order is promised. Gaps
// and errors are in all of them.
class Told : public FlowConsumer {
 public:
  explicit Told(unsigned wants) : wants_(wants) {}

  [[nodiscard]] unsigned wants() const override { return wants_; }
  void on_branch(const Branch& branch) override { branches_.on_branch(branch); }
  void on_not_taken(uint64_t ip) override { not_taken_.on_not_taken(ip); }
  void on_block(const Block& block) override { blocks_.on_block(block); }
  void on_gap(const Gap& gap) override {
    for (FlowRecorder* recorder : {&branches_, &not_taken_, &blocks_}) recorder->on_gap(gap);
  }
  void on_error(const DecodeError& error) override {
    for (FlowRecorder* recorder : {&branches_, &not_taken_, &blocks_}) recorder->on_error(error);
  }

  [[nodiscard]] const Records& branches() const { return branches_.records(); }
  [[nodiscard]] const Records& not_taken() const { return not_taken_.records(); }
  [[nodiscard]] const Records& blocks() const { return blocks_.records(); }

 private:
  unsigned wants_;
  FlowRecorder branches_{true};
  FlowRecorder not_taken_{true};
  FlowRecorder blocks_{true};
};

// Takes blocks that follow each other for one where the other list has it so: the walk does not cut
// blocks at sections' ends or where an event happened.
void join_blocks(const Records& left, const Records& right, Records& one, Records& other) {
  const auto extend = [](FlowRecord& block, const Records& list, size_t& next) {
    if (next == list.size() || list[next].kind != FlowRecordKind::kBlock) return false;
    block.to = list[next].to;
    block.number += list[next++].number;
    return true;
  };
  size_t i = 0;
  size_t j = 0;
  while (i < left.size() && j < right.size()) {
    FlowRecord l = left[i++];
    FlowRecord r = right[j++];
    const bool may_join = l.kind == FlowRecordKind::kBlock && r.kind == l.kind && l.from == r.from;
    while (may_join && l.number != r.number) {
      if (!(l.number < r.number ? extend(l, left, i) : extend(r, right, j))) break;
    }
    one.push_back(l);
    other.push_back(r);
  }
  one.insert(one.end(), left.begin() + static_cast<std::ptrdiff_t>(i), left.end());
  other.insert(other.end(), right.begin() + static_cast<std::ptrdiff_t>(j), right.end());
}

std::optional<Finding> compare_lists(std::string_view what, const Records& left,
                                     const Records& right) {
  const auto difference = compare_flows(left, right);
  if (!difference) return std::nullopt;
  return Finding{{},
                 fmt::format("{}: {}", what, difference->what),
                 side_by_side(left, difference->left, right, difference->right),
                 0};
}

std::optional<Finding> compare_told(std::string_view what, const Told& left,
                                    const DecodeSummary& one, const Told& right,
                                    const DecodeSummary& other) {
  auto finding =
      compare_lists(fmt::format("{}: branches", what), left.branches(), right.branches());
  if (!finding && (right.wants() & kWantsNotTaken) != 0) {
    finding =
        compare_lists(fmt::format("{}: not taken", what), left.not_taken(), right.not_taken());
  }
  if (!finding && (right.wants() & kWantsBlocks) != 0) {
    Records blocks;
    Records other_blocks;
    join_blocks(left.blocks(), right.blocks(), blocks, other_blocks);
    finding = compare_lists(fmt::format("{}: blocks", what), blocks, other_blocks);
  }
  if (finding) return finding;
  if (one.bytes != other.bytes) return Finding{{}, "bytes differ", {}, 0};
  if (const auto difference = compare_summaries(one, other)) {
    return Finding{{},
                   fmt::format("{}: {}", what, difference->what),
                   side_by_side(left.branches(), left.branches().size(), right.branches(),
                                right.branches().size()),
                   0};
  }
  return std::nullopt;
}

Records list(const EdgeProfile& profile) {
  Records records;
  for (const EdgeProfile::Edge& edge : profile.edges()) {
    FlowRecord record;
    record.branch = edge.branch.kind;
    record.from = edge.branch.from;
    record.to = edge.branch.to;
    record.ends_trace = edge.branch.ends_trace;
    record.number = edge.count;
    records.push_back(record);
  }
  for (const EdgeProfile::Untaken& untaken : profile.untaken()) {
    FlowRecord record;
    record.kind = FlowRecordKind::kNotTaken;
    record.from = untaken.ip;
    record.number = untaken.count;
    records.push_back(record);
  }
  return records;
}

// Decoders by the circumstances that matter to them: one serves many programs.
class NativePool {
 public:
  explicit NativePool(bool walks) : walks_(walks) {}
  NativeDecoder& get(const TraceConfig& config) {
    if (decoders_.size() >= kMaxDecoders) clear();
    const std::string key = fmt::format("{} {} {} {:x} {:x}", config.intel_cpu, config.model,
                                        config.mtc_freq, config.filter_start, config.filter_end);
    auto& decoder = decoders_[key];
    if (!decoder) {
      decoder = std::make_unique<NativeDecoder>(config, programs_, NativeOptions{walks_});
    }
    return *decoder;
  }
  [[nodiscard]] const std::shared_ptr<ProgramCache>& programs() const { return programs_; }
  void clear() { decoders_.clear(); }

 private:
  static constexpr size_t kMaxDecoders = 40;
  bool walks_;
  std::shared_ptr<ProgramCache> programs_ = std::make_shared<ProgramCache>();
  std::unordered_map<std::string, std::unique_ptr<NativeDecoder>> decoders_;
};

// What decoders learnt is part of what is compared: nothing is forgotten after a difference.
class NativeComparison : public Comparison {
 public:
  void forget() override {}
  [[nodiscard]] bool may_forget() const override { return false; }
};

class WalkComparison : public NativeComparison {
 public:
  [[nodiscard]] std::string_view name() const override { return "flow alone | with walks"; }

  std::optional<Finding> compare(const DifferentialCase& made) override {
    NativeDecoder& slow = flow_.get(made.config);
    NativeDecoder& fast = walks_.get(made.config);
    const auto& trace = made.trace.bytes;
    Told expected(kWantsAll);
    const auto sum = slow.decode(*made.code, trace, expected);
    for (int pass = 0; pass < 3; ++pass) {
      for (const unsigned wants : {unsigned{kWantsAll}, kWantsBranches | kWantsGaps}) {
        if (pass == 2 && wants == kWantsAll) continue;
        Told told(wants);
        const auto seen = fast.decode(*made.code, trace, told);
        const auto what =
            fmt::format("pass {}, {}", pass, wants == kWantsAll ? "everything" : "branches only");
        if (auto found = compare_told(what, expected, sum, told, seen)) return found;
      }
    }
    return compare_edges(made, slow, fast, sum);
  }

 private:
  static std::optional<Finding> compare_edges(const DifferentialCase& made, NativeDecoder& slow,
                                              NativeDecoder& fast, const DecodeSummary& sum) {
    EdgeProfile expected;
    EdgeProfile counted;
    for (int pass = 0; pass < 3; ++pass) {
      (void)slow.decode(*made.code, made.trace.bytes, expected);
      const auto seen = fast.count_edges(*made.code, made.trace.bytes, counted);
      if (const auto difference = compare_summaries(sum, seen)) {
        return Finding{{}, "edges: " + difference->what, {}, 0};
      }
      if (pass == 1) continue;  // counts may stay in the decoder for long
      fast.flush_edges(counted);
      if (auto found = compare_lists("edges", list(expected), list(counted))) return found;
    }
    return std::nullopt;
  }

  NativePool flow_{false};
  NativePool walks_{true};
};

// One code for all time.
class ConstantCode : public CodeTimeline {
 public:
  explicit ConstantCode(const image::CodeMap& code) : code_(code) {}
  View at(uint64_t) override { return {&code_, ~uint64_t{0}}; }

 private:
  const image::CodeMap& code_;
};

// Whether a PSB, where a trace may be cut, is not where a packet ends: only damage does that.
bool has_hidden_psb(const std::vector<std::byte>& trace) {
  pt::PacketReader reader(trace);
  pt::Packet packet;
  std::vector<uint64_t> psbs;
  if (!reader.sync_forward()) return false;
  while (reader.offset() < trace.size()) {
    const size_t at = reader.offset();
    if (reader.next(packet) == pt::ReadStatus::kPacket) {
      if (packet.kind == pt::PacketKind::kPsb) psbs.push_back(at);
    } else if (!reader.sync_forward()) {
      break;
    }
  }
  const auto borders = tracing_borders(trace, 1);
  return std::any_of(borders.begin(), borders.end(), [&psbs](const PsbBorder& border) {
    return !std::binary_search(psbs.begin(), psbs.end(), border.psb);
  });
}

class PieceComparison : public NativeComparison {
 public:
  [[nodiscard]] std::string_view name() const override { return "whole | pieces"; }

  std::optional<Finding> compare(const DifferentialCase& made) override {
    auto found = decode(made);
    if (found && !made.is_genuine && has_hidden_psb(made.trace.bytes)) {
      found->explained = "damage: a packet hides a PSB";
    }
    return found;
  }

 private:
  std::optional<Finding> decode(const DifferentialCase& made) {
    Random random(made.number);
    Told expected(kWantsAll);
    const auto sum = pool_.get(made.config).decode(*made.code, made.trace.bytes, expected);
    for (const unsigned threads : {2, 3}) {
      const size_t piece_bytes = random.between(16, random.one_in(2) ? 100 : 1000);
      ParallelDecoder parallel(made.config, threads, pool_.programs(), piece_bytes);
      Told told(kWantsAll);
      const auto seen = parallel.decode(*made.code, made.trace.bytes, told);
      const auto what = fmt::format("{} threads, pieces of {}", threads, piece_bytes);
      if (auto found = compare_told(what, expected, sum, told, seen)) return found;
      EdgeProfile whole;
      EdgeProfile counted;
      (void)pool_.get(made.config).decode(*made.code, made.trace.bytes, whole);
      const auto counts = parallel.count_edges(*made.code, made.trace.bytes, counted);
      if (auto found = compare_lists(what + ", edges", list(whole), list(counted))) return found;
      if (const auto difference = compare_summaries(sum, counts)) {
        return Finding{{}, what + ", edges: " + difference->what, {}, 0};
      }
    }
    return compare_stream(made, expected, sum, random);
  }

  std::optional<Finding> compare_stream(const DifferentialCase& made, const Told& expected,
                                        const DecodeSummary& sum, Random& random) {
    const std::span<const std::byte> trace(made.trace.bytes);
    std::vector<std::span<const std::byte>> pieces;
    for (size_t at = 0; at < trace.size();) {
      const size_t size = std::min(random.between(0, 300), trace.size() - at);
      pieces.push_back(trace.subspan(at, size));
      at += size;
    }
    ConstantCode code(*made.code);
    StreamOptions options;
    options.window_bytes = random.between(1, random.one_in(2) ? 100 : 2000);
    Told told(kWantsAll);
    const auto stream = pool_.get(made.config).open(pieces, code, told, options);
    while (stream->run(random.one_in(2) ? ~uint64_t{0} : stream->time_ns() + 1)) {
    }
    return compare_told(fmt::format("stream, windows of {}", options.window_bytes), expected, sum,
                        told, stream->summary());
  }

  NativePool pool_{true};
};

// Without the walk, which delivers kinds in batches and is compared exactly by WalkComparison: here
// the order among all kinds counts.
std::unique_ptr<BranchDecoder> flow_alone(const TraceConfig& config) {
  return std::make_unique<NativeDecoder>(config, nullptr, NativeOptions{false});
}

bool is_loss(const Records& records, size_t index) {
  return index >= records.size() ||
         (records[index].kind == FlowRecordKind::kGap && records[index].gap == GapKind::kOverflow);
}

// Offsets are left out, for libipt 2.0.5 reads ahead. Where a packet told a branch's target right
// before packets were lost, or before the end, only the native decoder delivers it.
class LibiptComparison : public NativeComparison {
 public:
  [[nodiscard]] std::string_view name() const override { return "libipt | native"; }

  std::optional<Finding> compare(const DifferentialCase& made) override {
    if (!made.is_genuine) return std::nullopt;
    FlowRecorder left(false);
    FlowRecorder right(false);
    auto one = libipt_.get(made).decode(*made.code, made.trace.bytes, left);
    const auto other = native_.get(made).decode(*made.code, made.trace.bytes, right);
    for (FlowRecorder* recorder : {&left, &right}) {
      for (FlowRecord& record : recorder->records()) record.number = 0;
    }
    drop_last_before_loss(left.records(), right.records(), one);
    auto difference = compare_flows(left.records(), right.records());
    if (!difference && (difference = compare_summaries(one, other))) {
      difference->left = left.records().size();
      difference->right = right.records().size();
    }
    if (!difference) return std::nullopt;
    const char* reason = explanation(made, *difference, right.records(), left.records());
    if (reason == nullptr && difference->left < left.records().size() &&
        difference->right < right.records().size() && is_loss(left.records(), difference->left) &&
        is_loss(right.records(), difference->right) && left.records()[difference->left].from == 0) {
      reason = "lost right behind a PSB+";  // drop_last_before_loss() took that it began
    }
    if (reason != nullptr) return Finding{reason, {}, {}, 0};
    return Finding{
        {},
        difference->what,
        side_by_side(left.records(), difference->left, right.records(), difference->right),
        0};
  }

 private:
  static void drop_last_before_loss(const Records& left, Records& right, DecodeSummary& sum) {
    Records kept;
    for (size_t i = 0; i < right.size(); ++i) {
      const FlowRecord& record = right[i];
      const bool is_taken = record.kind == FlowRecordKind::kBranch;
      const bool may_go = is_taken || record.kind == FlowRecordKind::kNotTaken;
      if (may_go && is_loss(right, i + 1) && is_loss(left, kept.size())) {
        ++(is_taken ? sum.branches : sum.not_taken);
      } else {
        kept.push_back(record);
      }
    }
    right = std::move(kept);
  }

  DecoderPool libipt_{[](const TraceConfig& config) { return make_libipt_decoder(config); }};
  DecoderPool native_{flow_alone};
};

}  // namespace

std::unique_ptr<Comparison> compare_walks() { return std::make_unique<WalkComparison>(); }
std::unique_ptr<Comparison> compare_pieces() { return std::make_unique<PieceComparison>(); }
std::unique_ptr<Comparison> compare_native_with_libipt() {
  return std::make_unique<LibiptComparison>();
}
std::unique_ptr<Comparison> compare_native_with_truth() { return compare_truth(flow_alone); }

}  // namespace auxtrail::decode::testing
