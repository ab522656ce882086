#include "decode/testing/comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "decode/testing/flow_comparison.h"
#include "decode/testing/native_flow.h"
#include "decode/testing/oracle_explanations.h"
#include "pt/packet_reader.h"

namespace auxtrail::decode::testing {
namespace {

constexpr size_t kRecordsBefore = 8;
constexpr size_t kRecordsAfter = 6;
constexpr size_t kPacketsBefore = 24;
constexpr size_t kPacketsAfter = 16;

// The newest offset that the records up to `index` tell of.
uint64_t offset_before(const std::vector<FlowRecord>& records, size_t index) {
  for (size_t i = std::min(index + 1, records.size()); i > 0; --i) {
    const FlowRecord& record = records[i - 1];
    const bool has_offset =
        record.kind == FlowRecordKind::kGap || record.kind == FlowRecordKind::kError;
    if (has_offset) return record.number;
  }
  return 0;
}

class TruthComparison : public Comparison {
 public:
  explicit TruthComparison(DecoderPool::Factory decoder) : pool_(std::move(decoder)) {}
  [[nodiscard]] std::string_view name() const override { return "truth | decoder"; }

  std::optional<Finding> compare(const DifferentialCase& made) override {
    if (!made.is_genuine) return std::nullopt;
    recorder_.clear();
    const auto summary = pool_.get(made).decode(*made.code, made.trace.bytes, recorder_);
    const auto& flow = recorder_.records();
    const auto& truth = made.trace.truth;
    const auto difference = compare_with_truth(made.trace, flow, summary);
    if (!difference) return std::nullopt;
    if (const char* reason = explanation(made, *difference, truth, flow)) {
      return Finding{reason, {}, {}, 0};
    }
    return Finding{{},
                   difference->what,
                   side_by_side(truth, difference->left, flow, difference->right),
                   offset_before(flow, difference->right)};
  }
  void forget() override { pool_.clear(); }

 private:
  DecoderPool pool_;
  FlowRecorder recorder_{false};
};

class DecoderComparison : public Comparison {
 public:
  DecoderComparison(DecoderPool::Factory left, DecoderPool::Factory right, bool with_blocks)
      : left_(std::move(left)),
        right_(std::move(right)),
        left_recorder_(with_blocks),
        right_recorder_(with_blocks) {}
  [[nodiscard]] std::string_view name() const override { return "decoder | decoder"; }

  std::optional<Finding> compare(const DifferentialCase& made) override {
    left_recorder_.clear();
    right_recorder_.clear();
    const auto one = left_.get(made).decode(*made.code, made.trace.bytes, left_recorder_);
    const auto other = right_.get(made).decode(*made.code, made.trace.bytes, right_recorder_);
    const auto& left = left_recorder_.records();
    const auto& right = right_recorder_.records();
    auto difference = compare_flows(left, right);
    if (!difference && (difference = compare_summaries(one, other))) {
      difference->left = left.size();
      difference->right = right.size();
    }
    if (!difference) return std::nullopt;
    if (const char* reason = explanation(made, *difference, left, right)) {
      return Finding{reason, {}, {}, 0};
    }
    return Finding{{},
                   difference->what,
                   side_by_side(left, difference->left, right, difference->right),
                   offset_before(left, difference->left)};
  }
  void forget() override {
    left_.clear();
    right_.clear();
  }

 private:
  DecoderPool left_;
  DecoderPool right_;
  FlowRecorder left_recorder_;
  FlowRecorder right_recorder_;
};

// Two BlockFlows, made by whoever derives from this.
class BlockComparer : public Comparison {
 public:
  std::optional<Finding> compare(const DifferentialCase& made) override {
    decode(made);
    const auto& left = left_.records();
    const auto& right = right_.records();
    BlockComparison how = how_;
    how.explains = [&](const BlockDifference& found) { return !explain(made, found).empty(); };
    if (const auto found = compare_blocks(left, right, how)) {
      return Finding{explain(made, *found), found->what,
                     side_by_side(left, found->left, right, found->right), 0};
    }
    if (!same_besides()) {
      return Finding{made.is_genuine ? "" : "damage: power events", "power events differ",
                     side_by_side(left_.power_events(), 0, right_.power_events(), 0), 0};
    }
    if (how.passed != nullptr) return Finding{how.passed, {}, {}, 0};
    return std::nullopt;
  }

 protected:
  explicit BlockComparer(BlockComparison how) : how_(std::move(how)) {}
  virtual void decode(const DifferentialCase& made) = 0;
  [[nodiscard]] virtual std::string explain(const DifferentialCase& made,
                                            const BlockDifference& found) const = 0;
  [[nodiscard]] virtual bool same_besides() const { return true; }

  BlockComparison how_;
  BlockFlow left_;
  BlockFlow right_;
};

class OracleComparison : public BlockComparer {
 public:
  OracleComparison() : BlockComparer({}) {}
  [[nodiscard]] std::string_view name() const override { return "libipt blocks | libipt insns"; }
  void forget() override { oracle_ = std::make_unique<LibiptOracle>(); }

 private:
  void decode(const DifferentialCase& made) override {
    oracle_->decode_blocks(made, left_);
    oracle_->decode_insns(made, right_);
  }
  [[nodiscard]] std::string explain(const DifferentialCase& made,
                                    const BlockDifference& found) const override {
    return oracle_explanation(made, {left_.records(), found.left, right_.records(), found.right});
  }

  std::unique_ptr<LibiptOracle> oracle_ = std::make_unique<LibiptOracle>();
};

class FlowComparison : public BlockComparer {
 public:
  explicit FlowComparison(const BlockComparison& how) : BlockComparer(how) {
    how_.passes = flow_passes;
  }
  [[nodiscard]] std::string_view name() const override { return "libipt | flow"; }
  void forget() override { oracle_ = std::make_unique<LibiptOracle>(); }

 private:
  void decode(const DifferentialCase& made) override {
    oracle_->decode_blocks(made, left_);
    native_->decode(made, right_);
  }
  [[nodiscard]] std::string explain(const DifferentialCase& made,
                                    const BlockDifference& found) const override {
    return flow_explanation(made, {left_.records(), found.left, right_.records(), found.right});
  }
  // libipt 2.0.5 looks for PWRE's hardware bit in the wrong place.
  [[nodiscard]] bool same_besides() const override {
    const auto& left = left_.power_events();
    const auto& right = right_.power_events();
    return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                      [](flow::Event one, flow::Event other) {
                        if (one.kind == flow::EventKind::kPwre) other.flag = one.flag;
                        return same_event(one, other);
                      });
  }

  std::unique_ptr<LibiptOracle> oracle_ = std::make_unique<LibiptOracle>();
  std::unique_ptr<NativeFlow> native_ = std::make_unique<NativeFlow>();
};

}  // namespace

std::string text(const flow::Event& event) {
  BlockRecord record;
  record.kind = BlockRecordKind::kEvent;
  record.event = event;
  return text(record);
}

template <class Record>
std::string side_by_side(const std::vector<Record>& left, size_t left_index,
                         const std::vector<Record>& right, size_t right_index) {
  std::string shown;
  const size_t before = std::min({left_index, right_index, kRecordsBefore});
  for (size_t i = 0; i < before + kRecordsAfter; ++i) {
    const size_t l = left_index - before + i;
    const size_t r = right_index - before + i;
    if (l >= left.size() && r >= right.size()) break;
    shown +=
        fmt::format("{} {:<66} | {}\n", i == before ? '>' : ' ',
                    l < left.size() ? text(left[l]) : "", r < right.size() ? text(right[r]) : "");
  }
  return shown;
}
template std::string side_by_side(const std::vector<FlowRecord>&, size_t,
                                  const std::vector<FlowRecord>&, size_t);
template std::string side_by_side(const std::vector<BlockRecord>&, size_t,
                                  const std::vector<BlockRecord>&, size_t);
template std::string side_by_side(const std::vector<flow::Event>&, size_t,
                                  const std::vector<flow::Event>&, size_t);

std::unique_ptr<Comparison> compare_truth(DecoderPool::Factory decoder) {
  return std::make_unique<TruthComparison>(std::move(decoder));
}

std::unique_ptr<Comparison> compare_decoders(DecoderPool::Factory left, DecoderPool::Factory right,
                                             bool with_blocks) {
  return std::make_unique<DecoderComparison>(std::move(left), std::move(right), with_blocks);
}

std::unique_ptr<Comparison> compare_flow(const BlockComparison& how) {
  return std::make_unique<FlowComparison>(how);
}

std::unique_ptr<Comparison> compare_oracles() { return std::make_unique<OracleComparison>(); }

Differential::Result Differential::run() {
  Result result;
  for (uint64_t number = options_.first; number < options_.first + options_.count; ++number) {
    const DifferentialCase made = maker_.make(number);
    ++result.cases;
    result.bytes += made.trace.bytes.size();
    for (const auto& comparison : comparisons_) {
      auto finding = comparison->compare(made);
      if (!finding) continue;
      if (comparison->may_forget() && (finding->explained.empty() || !made.is_genuine)) {
        comparison->forget();
        finding = comparison->compare(made);
        if (!finding) finding = Finding{"decoders remember the cases before", {}, {}, 0};
      }
      const bool is_believed =
          options_.doubt.empty() || finding->explained.find(options_.doubt) == std::string::npos;
      if (!finding->explained.empty() && is_believed) {
        ++result.explained[fmt::format("{}: {}", comparison->name(), finding->explained)];
        continue;
      }
      if (++result.differences > options_.max_reports) continue;
      result.numbers.push_back(number);
      result.report +=
          fmt::format("--seed {} --case {}{}: {}: {}\n  {}\n{}packets:\n{}", options_.cases.seed,
                      number, options_.cases.mutate ? " --mutate" : "", comparison->name(),
                      finding->what, made.description, finding->shown,
                      options_.count == 1 ? packet_dump(made.trace.bytes)
                                          : packet_dump(made.trace.bytes, finding->offset));
    }
    if (options_.stop_at_difference && result.differences != 0) break;
  }
  return result;
}

std::string packet_dump(const std::vector<std::byte>& trace, std::optional<uint64_t> around) {
  std::vector<std::string> lines;
  size_t place = 0;  // of the line at `offset`
  const uint64_t offset = around.value_or(0);
  pt::PacketReader reader(trace);
  pt::Packet packet;
  while (reader.offset() < trace.size()) {
    if (reader.offset() <= offset) place = lines.size();
    const size_t at = reader.offset();
    const auto status = reader.next(packet);
    if (status == pt::ReadStatus::kPacket) {
      if (packet.kind == pt::PacketKind::kPad) continue;
      lines.push_back(fmt::format("  {:#06x}  {}\n", at, pt::text(packet)));
      continue;
    }
    lines.push_back(fmt::format("  {:#06x}  ({})\n", at, pt::name(status)));
    if (!reader.sync_forward()) break;
  }
  const size_t begin = offset == 0 || place < kPacketsBefore ? 0 : place - kPacketsBefore;
  const size_t end =
      std::min(lines.size(), std::max(place, begin + kPacketsBefore) + kPacketsAfter);
  std::string dump;
  for (size_t i = around ? begin : 0; i < (around ? end : lines.size()); ++i) dump += lines[i];
  return dump;
}

}  // namespace auxtrail::decode::testing
