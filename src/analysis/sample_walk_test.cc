// What a walk hands out, for samples whose history is known.
#include "analysis/sample_walk.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "analysis/testing/traced_file.h"
#include "perfdata/testing/synthetic.h"

namespace auxtrail::analysis {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Recording open(const std::vector<std::byte>& file) {
  auto recording = Recording::from_bytes(file, "test");
  EXPECT_TRUE(recording) << recording.error().message();
  return std::move(*recording);
}

TEST(SampleWalkTest, HandsOutTheKnownHistory) {
  const auto file = testing::traced_file(testing::traced_samples(3));
  Recording recording = open(file);
  SampleWalk walk(recording, {.blocks = true});
  size_t seen = 0;
  walk.run([&](const WalkedSample& sample) {
    ++seen;
    EXPECT_EQ(sample.sample.ip, testing::traced_code().end);
    EXPECT_EQ(sample.period, 1000000u);
    EXPECT_EQ(sample.event.name, "cpu-clock:u");
    EXPECT_TRUE(sample.ends_at_ip());
    EXPECT_THAT(sample.history.branches(), ElementsAreArray(testing::traced_branches()));
    uint64_t instructions = 0;
    for (const auto& block : sample.history.blocks()) instructions += block.instructions;
    EXPECT_EQ(instructions, testing::kTracedInstructions);
    return true;
  });
  EXPECT_EQ(seen, 3u);
  EXPECT_EQ(walk.statistics().samples_with_aux, 3u);
  EXPECT_EQ(walk.statistics().decoded.branches, 3 * testing::kTracedTaken);
  EXPECT_EQ(walk.statistics().decoded.not_taken, 3 * testing::kTracedNotTaken);
  EXPECT_THAT(walk.messages(), IsEmpty());
}

TEST(SampleWalkTest, KnowsTheThreadsName) {
  const auto file = testing::traced_file({});
  Recording recording = open(file);
  const uint32_t pid = perfdata::testing::kPid;
  EXPECT_EQ(recording.comm(pid, pid, 5), "traced");
  EXPECT_EQ(recording.comm(77, 78, 5), ":78");
}

TEST(SampleWalkTest, StopsWhenTheVisitorSaysSo) {
  const auto file = testing::traced_file(testing::traced_samples(5));
  Recording recording = open(file);
  SampleWalk walk(recording);
  size_t seen = 0;
  walk.run([&](const WalkedSample&) { return ++seen < 2; });
  EXPECT_EQ(seen, 2u);
}

TEST(SampleWalkTest, WithoutDecodingThereIsNoHistory) {
  const auto file = testing::traced_file(testing::traced_samples(2));
  Recording recording = open(file);
  SampleWalk walk(recording, {.decode = false});
  walk.run([&](const WalkedSample& sample) {
    EXPECT_TRUE(sample.has_history());
    EXPECT_THAT(sample.history.branches(), IsEmpty());
    return true;
  });
  EXPECT_EQ(walk.statistics().samples, 2u);
}

TEST(SampleWalkTest, MissingCodeIsCounted) {
  const auto file = testing::traced_file(testing::traced_samples(2), false);
  Recording recording = open(file);
  const auto no_map = static_cast<size_t>(decode::ErrorCause::kNoMap);
  for (const auto decoder : {decode::DecoderKind::kLibipt, decode::DecoderKind::kNative}) {
    SampleWalk walk(recording, {.decoder = decoder});
    walk.run([](const WalkedSample& sample) {
      EXPECT_GT(sample.decoded.error_count(), 0);
      return true;
    });
    // libipt gives up at the first error of a sample, ours at none.
    const uint64_t errors = walk.statistics().decoded.errors[no_map];
    EXPECT_TRUE(decoder == decode::DecoderKind::kLibipt ? errors == 2 : errors >= 2) << errors;
    ASSERT_EQ(walk.messages().size(), 1u);
    EXPECT_THAT(walk.messages()[0],
                HasSubstr(fmt::format("{} decode errors: no code at the address", errors)));
  }
}

TEST(SampleWalkTest, EmptyAuxIsCounted) {
  auto samples = testing::traced_samples(2);
  samples[0].aux.clear();
  const auto file = testing::traced_file(samples);
  Recording recording = open(file);
  SampleWalk walk(recording);
  walk.run([](const WalkedSample&) { return true; });
  EXPECT_EQ(walk.statistics().empty_aux, 1u);
  EXPECT_EQ(walk.statistics().samples_with_aux, 1u);
}

// A second walk must not see anything of the first.
TEST(SampleWalkTest, CanBeRepeated) {
  const auto file = testing::traced_file(testing::traced_samples(4));
  Recording recording = open(file);
  SampleWalk walk(recording);
  for (int round = 0; round < 2; ++round) {
    walk.run([](const WalkedSample&) { return true; });
    EXPECT_EQ(walk.statistics().decoded.branches, 4 * testing::kTracedTaken);
  }
}

}  // namespace
}  // namespace auxtrail::analysis
