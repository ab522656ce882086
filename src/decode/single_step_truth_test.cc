// Decoded branches against the truth: real programs are single-stepped, their steps encoded as
// Intel PT, and every decoded branch compared with what the processor did.
//
// This also puts the whole chain to the test that leads to code bytes: mappings, DSOs, ELF files,
// the vdso.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decode/libipt_decoder.h"
#include "decode/step_encoder.h"
#include "decode/test_support.h"
#include "pt/packet_writer.h"

namespace auxtrail::decode {
namespace {

using test::EncodeOptions;
using test::StepClass;
using test::Steps;

image::CodeMap code_of(const Steps& steps, image::DsoTable& dsos) {
  image::AddressSpaces spaces(dsos);
  for (const auto& map : steps.maps) {
    spaces.add_mapping(1, 0, map.start, map.end - map.start, map.file_offset, map.path);
  }
  return make_code_map(*spaces.layout(1, 0), dsos);
}

// Code that never changes.
class StillCode : public CodeTimeline {
 public:
  explicit StillCode(const image::CodeMap& code) : code_(code) {}
  View at(uint64_t) override { return {&code_, ~uint64_t{0}}; }

 private:
  const image::CodeMap& code_;
};

struct Program {
  const char* title;
  std::vector<std::string> command;
  size_t skip;
  size_t count;
};

std::ostream& operator<<(std::ostream& out, const Program& program) { return out << program.title; }

class SingleStepTruth : public testing::TestWithParam<Program> {
 protected:
  void SetUp() override {
    steps_ = test::single_step(GetParam().command, GetParam().skip, GetParam().count);
    if (!steps_.failure.empty()) GTEST_SKIP() << steps_.failure;
    code_ = code_of(steps_, dsos_);
  }

  static void expect_same(const std::vector<Branch>& ours, const std::vector<Branch>& truth) {
    const size_t common = std::min(ours.size(), truth.size());
    for (size_t i = 0; i < common; ++i) {
      ASSERT_EQ(ours[i], truth[i])
          << fmt::format("branch {}: {:#x} -> {:#x}, expected {:#x} -> {:#x}", i, ours[i].from,
                         ours[i].to, truth[i].from, truth[i].to);
    }
    ASSERT_EQ(ours.size(), truth.size());
  }

  // Decodes the steps [first, last) and compares everything.
  void check(const std::vector<std::byte>& trace, size_t first, size_t last) {
    const auto truth = test::truth_of(steps_, first, last);
    test::CountingConsumer consumer;
    const auto summary = decoder_->decode(code_, trace, consumer);
    ASSERT_EQ(summary.error_count(), 0) << consumer.first_error_text();
    expect_same(consumer.branches, truth.branches);
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(consumer.not_taken, truth.not_taken);
    EXPECT_EQ(summary.instructions, truth.instructions);
    EXPECT_EQ(summary.not_taken, truth.not_taken.size());
    EXPECT_EQ(summary.first_ip, steps_.ips[first]);
    EXPECT_EQ(summary.final_ip, truth.final_ip);
    EXPECT_FALSE(summary.ends_open);
    branches_ += truth.branches.size();
  }

  void whole_run_in_every_encoding() {
    const size_t last = steps_.ips.size() - 1;
    for (unsigned bits = 0; bits < 8; ++bits) {
      EncodeOptions options;
      options.compress_returns = (bits & 1) != 0;
      options.long_tnt = (bits & 2) != 0;
      options.start_in_psb = (bits & 4) != 0;
      options.seed = bits;
      SCOPED_TRACE(fmt::format("encoding {}", bits));
      check(test::StepEncoder(options).encode(steps_, 0, last), 0, last);
      ASSERT_FALSE(HasFatalFailure());
    }
  }

  // The same flow from a stream, in pieces and windows of every size.
  void streams_of_every_shape() {
    std::mt19937 random(7);
    const size_t last = steps_.ips.size() - 1;
    const auto truth = test::truth_of(steps_, 0, last);
    for (uint32_t round = 0; round < 30; ++round) {
      EncodeOptions options;
      options.compress_returns = round % 2 == 0;
      options.long_tnt = round % 3 == 0;
      options.psb_every = 3 + random() % 1500;
      options.seed = round;
      const auto trace = test::StepEncoder(options).encode(steps_, 0, last);
      StreamOptions stream_options;
      stream_options.window_bytes = 1 + random() % 20'000;
      SCOPED_TRACE(fmt::format("round {}, PSB every {}, windows of {}", round, options.psb_every,
                               stream_options.window_bytes));
      std::vector<std::span<const std::byte>> pieces;
      for (std::span<const std::byte> rest = trace; !rest.empty();) {
        const size_t size = std::min<size_t>(1 + random() % 5'000, rest.size());
        pieces.push_back(rest.first(size));
        rest = rest.subspan(size);
      }
      test::CountingConsumer consumer;
      StillCode code(code_);
      const auto stream = decoder_->open(pieces, code, consumer, stream_options);
      while (stream->run(0)) {
      }
      const DecodeSummary summary = stream->summary();
      ASSERT_EQ(summary.error_count(), 0) << consumer.first_error_text();
      expect_same(consumer.branches, truth.branches);
      ASSERT_FALSE(HasFatalFailure());
      ASSERT_EQ(consumer.not_taken, truth.not_taken);
      ASSERT_EQ(summary.instructions, truth.instructions);
      ASSERT_EQ(summary.branches + 2 * consumer.count(BranchKind::kSyscall) + 2,
                truth.branches.size() + consumer.count(BranchKind::kSyscall));
      ASSERT_EQ(summary.not_taken, truth.not_taken.size());
      ASSERT_EQ(summary.bytes, trace.size());
      ASSERT_EQ(summary.final_ip, truth.final_ip);
      ASSERT_EQ(summary.first_ip, steps_.ips[0]);
      ASSERT_FALSE(summary.ends_open);
    }
  }

  void short_windows_anywhere() {
    std::mt19937 random(42);
    const size_t steps = steps_.ips.size() - 1;
    for (int window = 0; window < 2'000; ++window) {
      const size_t first = random() % steps;
      const size_t last = first + 1 + random() % std::min<size_t>(300, steps - first);
      EncodeOptions options;
      options.compress_returns = window % 2 == 0;
      options.long_tnt = window % 3 == 0;
      options.start_in_psb = window % 5 == 0;
      options.seed = static_cast<uint32_t>(window);
      SCOPED_TRACE(fmt::format("steps {} to {}", first, last));
      check(test::StepEncoder(options).encode(steps_, first, last), first, last);
      ASSERT_FALSE(HasFatalFailure());
    }
  }

  Steps steps_;
  image::DsoTable dsos_;
  image::CodeMap code_;
  std::unique_ptr<BranchDecoder> decoder_ = make_libipt_decoder();
  uint64_t branches_ = 0;
};

// One test, because single-stepping is slow: first everything at once, then windows that begin and
// end at every kind of instruction.
TEST_P(SingleStepTruth, EveryBranchIsTheProcessors) {
  whole_run_in_every_encoding();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_GT(branches_, GetParam().count / 4) << "too few branches to mean anything";
  streams_of_every_shape();
  ASSERT_FALSE(HasFatalFailure());
  short_windows_anywhere();
}
INSTANTIATE_TEST_SUITE_P(
    Programs, SingleStepTruth,
    testing::Values(Program{"branches", {AUXTRAIL_BRANCHES_PROGRAM}, 0, 60'000},
                    Program{"true_startup", {"/bin/true"}, 0, 30'000},
                    Program{"ls", {"/bin/ls", "-l", "/"}, 60'000, 30'000},
                    Program{"date", {"/bin/date"}, 40'000, 30'000}),
    [](const auto& program) { return std::string(program.param.title); });

}  // namespace
}  // namespace auxtrail::decode
