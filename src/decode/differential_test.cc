// The generator of traces and the comparison of decoders: that traces are what they say, and that
// faults are found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "decode/libipt_decoder.h"
#include "decode/testing/comparison.h"
#include "decode/testing/flow_comparison.h"
#include "pt/packet_reader.h"

namespace auxtrail::decode::testing {
namespace {

std::unique_ptr<BranchDecoder> libipt(const TraceConfig& config) {
  return make_libipt_decoder(config);
}

Differential::Options options(uint64_t count, bool mutate) {
  Differential::Options result;
  result.cases.seed = 4;
  result.cases.mutate = mutate;
  result.count = count;
  return result;
}

// The oracle that neither the generator nor its truth knows anything of.
TEST(DifferentialTest, LibiptDecodesWhatHappened) {
  Differential differential(options(4000, false), {});
  differential.add(compare_truth(libipt));
  const auto result = differential.run();
  EXPECT_EQ(result.differences, 0) << result.report;
  EXPECT_EQ(result.cases, 4000);
  uint64_t explained = 0;
  for (const auto& [name, count] : result.explained) explained += count;
  EXPECT_LT(explained, 4000 / 20) << "too many differences are explained away";
}

TEST(DifferentialTest, LibiptsTwoDecodersAgree) {
  Differential differential(options(2000, false), {});
  differential.add(compare_oracles());
  const auto result = differential.run();
  EXPECT_EQ(result.differences, 0) << result.report;
}

TEST(DifferentialTest, FlowDecoderAgreesWithLibipt) {
  Differential differential(options(3000, false), {});
  BlockComparison how;
  how.times = how.error_offsets = false;  // libipt 2.0.5 reads ahead
  differential.add(compare_flow(how));
  const auto result = differential.run();
  EXPECT_EQ(result.differences, 0) << result.report;
}

TEST(DifferentialTest, DamagedTracesDecodeTheSameTwice) {
  Differential differential(options(2000, true), {});
  differential.add(compare_decoders(libipt, libipt, true));
  const auto result = differential.run();
  EXPECT_EQ(result.differences, 0) << result.report;
  EXPECT_TRUE(result.explained.empty());
}

TEST(DifferentialTest, TracesHoldEveryPacketAndEveryKindOfBranch) {
  CaseMaker maker({}, {});
  std::set<pt::PacketKind> packets;
  std::set<pt::IpCompression> compressions;
  std::set<BranchKind> branches;
  std::set<GapKind> gaps;
  for (uint64_t number = 0; number < 1000; ++number) {
    const DifferentialCase made = maker.make(number);
    pt::PacketReader reader(made.trace.bytes);
    pt::Packet packet;
    pt::ReadStatus status = reader.next(packet);
    for (; status == pt::ReadStatus::kPacket; status = reader.next(packet)) {
      packets.insert(packet.kind);
      if (packet.has_ip()) compressions.insert(packet.ipc);
    }
    EXPECT_EQ(status, pt::ReadStatus::kEnd) << "case " << number;
    for (const FlowRecord& record : made.trace.truth) {
      if (record.kind == FlowRecordKind::kBranch) branches.insert(record.branch);
      if (record.kind == FlowRecordKind::kGap) gaps.insert(record.gap);
    }
  }
  // All up to PTW: the kinds behind it are newer than the oracle.
  EXPECT_EQ(packets.size(), static_cast<size_t>(pt::PacketKind::kCfe));
  EXPECT_EQ(compressions.size(), 5);
  EXPECT_EQ(branches.size(), static_cast<size_t>(BranchKind::kCount));
  EXPECT_EQ(gaps.size(), 2);
}

TEST(DifferentialTest, ACaseAloneIsTheSameAsAmongOthers) {
  for (const bool mutate : {false, true}) {
    CaseOptions how;
    how.mutate = mutate;
    CaseMaker among(how, {});
    for (uint64_t number = 0; number < 200; ++number) (void)among.make(number);
    CaseMaker alone(how, {});
    const DifferentialCase one = among.make(200);
    const DifferentialCase other = alone.make(200);
    EXPECT_EQ(one.description, other.description);
    EXPECT_EQ(one.trace.bytes, other.trace.bytes);
    EXPECT_EQ(one.trace.truth, other.trace.truth);
  }
}

// Two PSBs, an error behind the first of them.
std::vector<BlockRecord> block_records() {
  BlockFlow flow;
  flow.sync(0);
  flow.run({0x1000, 0x1004, 2, flow::ExecMode::k64, false, false, 5});
  flow.run({0x1006, 0x1008, 2, flow::ExecMode::k64, false, true, 6});  // joins the run before
  flow::Event event;
  event.kind = flow::EventKind::kDisabled;
  event.ip = 0x2000;
  flow.event(event, false);
  flow.error(flow::Status::kBadOpcode, 0x40);
  flow.sync(0x80);
  flow.run({0x3000, 0x3000, 1, flow::ExecMode::k64, false, true, 9});
  return flow.records();
}

TEST(BlockComparisonTest, EveryFieldCounts) {
  const auto left = block_records();
  ASSERT_EQ(left.size(), 6);
  EXPECT_EQ(left[1].instructions, 4);
  const auto differs = [&left](auto change) {
    auto right = left;
    change(right);
    BlockComparison how;
    return compare_blocks(left, right, how).has_value();
  };
  EXPECT_FALSE(differs([](auto&) {}));
  EXPECT_TRUE(differs([](auto& right) { right[1].last_ip ^= 1; }));
  EXPECT_TRUE(differs([](auto& right) { ++right[1].instructions; }));
  EXPECT_TRUE(differs([](auto& right) { right[1].mode = flow::ExecMode::k32; }));
  EXPECT_TRUE(differs([](auto& right) { right[1].is_speculative = true; }));
  EXPECT_TRUE(differs([](auto& right) { ++right[1].time; }));
  EXPECT_TRUE(differs([](auto& right) { right[2].event.ip ^= 1; }));
  EXPECT_TRUE(differs([](auto& right) { right[2].event.has_tsc = true; }));
  EXPECT_TRUE(differs([](auto& right) { right[2].resumed = true; }));
  EXPECT_TRUE(differs([](auto& right) { right[3].error = flow::Status::kBadPacket; }));
  EXPECT_TRUE(differs([](auto& right) { ++right[3].offset; }));
  EXPECT_TRUE(differs([](auto& right) { right.erase(right.begin() + 2); }));
  EXPECT_TRUE(differs([](auto& right) { right.pop_back(); }));
  EXPECT_TRUE(differs([](auto& right) { ++right[5].first_ip; })) << "behind the second PSB";
}

// Decodes as libipt does, but for one kind of fault.
class FaultyDecoder : public BranchDecoder {
 public:
  using Fault = void (*)(std::vector<FlowRecord>&, DecodeSummary&);
  FaultyDecoder(const TraceConfig& config, Fault fault)
      : decoder_(make_libipt_decoder(config)), fault_(fault) {}

  DecodeSummary decode(const image::CodeMap& code, std::span<const std::byte> trace,
                       FlowConsumer& consumer) override {
    FlowRecorder recorder(false);
    DecodeSummary summary = decoder_->decode(code, trace, recorder);
    fault_(recorder.records(), summary);
    for (const FlowRecord& record : recorder.records()) replay(record, consumer);
    return summary;
  }
  std::unique_ptr<TraceStream> open(std::vector<std::span<const std::byte>>, CodeTimeline&,
                                    FlowConsumer&, const StreamOptions&) override {
    return nullptr;
  }

 private:
  static void replay(const FlowRecord& record, FlowConsumer& consumer) {
    switch (record.kind) {
      case FlowRecordKind::kBranch:
        return consumer.on_branch({record.from, record.to, record.branch, record.ends_trace});
      case FlowRecordKind::kNotTaken:
        return consumer.on_not_taken(record.from);
      case FlowRecordKind::kGap:
        return consumer.on_gap({record.gap, record.from, record.to, record.number});
      case FlowRecordKind::kError:
        return consumer.on_error({record.cause, record.number, record.from});
      case FlowRecordKind::kBlock:
        break;
    }
  }

  std::unique_ptr<BranchDecoder> decoder_;
  Fault fault_;
};

struct NamedFault {
  const char* name;
  FaultyDecoder::Fault fault;
  bool truth_knows;  // it is in what happened, too, not only in what decoders tell
};

std::ostream& operator<<(std::ostream& out, const NamedFault& fault) { return out << fault.name; }

class DifferentialFaults : public ::testing::TestWithParam<NamedFault> {
 protected:
  static std::unique_ptr<BranchDecoder> faulty(const TraceConfig& config) {
    return std::make_unique<FaultyDecoder>(config, GetParam().fault);
  }
};

TEST_P(DifferentialFaults, AreFoundAgainstAnotherDecoder) {
  Differential differential(options(1000, true), {});
  differential.add(compare_decoders(libipt, faulty, false));
  const auto result = differential.run();
  EXPECT_EQ(result.differences, 1);
  ASSERT_EQ(result.numbers.size(), 1);
  EXPECT_THAT(result.report, ::testing::HasSubstr("--seed 4 --case "));

  // The case that is named shows it again.
  auto again = options(1, true);
  again.first = result.numbers[0];
  Differential replay(again, {});
  replay.add(compare_decoders(libipt, faulty, false));
  const auto flows = [](const std::string& report) {  // without packets: one case alone shows all
    return report.substr(0, report.find("packets:"));
  };
  EXPECT_EQ(flows(replay.run().report), flows(result.report));
}

TEST_P(DifferentialFaults, AreFoundAgainstTheTruth) {
  Differential differential(options(1000, false), {});
  differential.add(compare_truth(faulty));
  EXPECT_EQ(differential.run().differences, GetParam().truth_knows ? 1 : 0);
}

using Records = std::vector<FlowRecord>;

INSTANTIATE_TEST_SUITE_P(
    All, DifferentialFaults,
    ::testing::Values(
        NamedFault{"ReturnToTheWrongPlace",
                   [](Records& records, DecodeSummary&) {
                     size_t returns = 0;
                     for (FlowRecord& record : records) {
                       if (record.kind == FlowRecordKind::kBranch &&
                           record.branch == BranchKind::kReturn && ++returns == 9) {
                         record.to ^= 0x10000;
                       }
                     }
                   },
                   true},
        NamedFault{"NotTakenIsForgotten",
                   [](Records& records, DecodeSummary&) {
                     size_t count = 0;
                     std::erase_if(records, [&count](const FlowRecord& record) {
                       return record.kind == FlowRecordKind::kNotTaken && ++count == 20;
                     });
                   },
                   true},
        NamedFault{"GapIsOfAnotherKind",
                   [](Records& records, DecodeSummary&) {
                     for (FlowRecord& record : records) {
                       if (record.kind == FlowRecordKind::kGap) record.gap = GapKind::kOverflow;
                     }
                   },
                   true},
        NamedFault{"OneInstructionMore",
                   [](Records&, DecodeSummary& summary) { ++summary.instructions; }, true},
        NamedFault{"ErrorAtAnotherPlace",
                   [](Records& records, DecodeSummary&) {
                     for (FlowRecord& record : records) {
                       if (record.kind == FlowRecordKind::kError) ++record.number;
                     }
                   },
                   false},
        NamedFault{"EndsOpen",
                   [](Records&, DecodeSummary& summary) { summary.ends_open = !summary.ends_open; },
                   false}),
    [](const auto& fault) { return std::string(fault.param.name); });

}  // namespace
}  // namespace auxtrail::decode::testing
