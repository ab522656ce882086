// Windowed tracing: a sample holds the bytes of its own window and none from before. The software
// unit has no registers and appends packets with write(); a unit with registers can be windowed as
// well.
#include "event/thread_context.h"
#include "pmu/testing/pt_test_support.h"

namespace auxtrail::pmu {
namespace {

using namespace testing;  // NOLINT

constexpr uint32_t kRequest = 256;

class WindowTest : public ::testing::Test {
 protected:
  WindowTest() {
    pt_.windowed = true;
    ThreadConfig config;
    config.leader = &leader_;
    config.sampler = &sampler_;
    config.leader_id = 11;
    config.sampler_id = 101;
    config.leader_pmu = &kIntelPt;
    config.leader_context = &pt_;
    config.tid = kTid;
    config.control = memory_.control();
    config.data = memory_.data();
    config.data_bytes = memory_.data_bytes();
    config.aux = memory_.aux();
    config.aux_bytes = memory_.aux_bytes();
    EXPECT_EQ(context_.init(config), 0);
  }
  OverflowResult overflow() { return context_.overflow({0x401000, 4700, kTid, 1, 0, 1, 0}); }
  Bytes newest_aux() {
    const auto records = drain(reader_);
    return records.empty() ? Bytes() : aux_of(records.back());
  }
  void window(size_t bytes, size_t first) {
    pt_.begin_window();
    const Bytes packets = pattern(bytes, first);
    context_.aux().write(packets.data(), packets.size());
  }

  perf_event_attr leader_ = leader_attr();
  perf_event_attr sampler_ = sampler_attr(kUsualSampleType, kRequest);
  Memory memory_{1 << 16, 4096};
  PtContext pt_;
  ThreadContext context_;
  RingReader reader_ = memory_.reader();
};

TEST_F(WindowTest, ASampleHoldsItsOwnWindowOnly) {
  for (size_t i = 0; i < 300; ++i) {
    const size_t bytes = 8 * (1 + i * 7 % 32);
    window(bytes, i * 13);
    ASSERT_EQ(overflow().aux_bytes, bytes);
    ASSERT_EQ(newest_aux(), pattern(bytes, i * 13)) << i;
  }
}

TEST_F(WindowTest, AnOddWindowIsPaddedAtItsEnd) {
  window(100, 50);
  window(13, 7);
  EXPECT_EQ(overflow().aux_bytes, 16u);
  Bytes expected = pattern(13, 7);
  expected.resize(16);  // not with the bytes of the window before
  EXPECT_EQ(newest_aux(), expected);
}

TEST_F(WindowTest, ALargerWindowIsCutToTheRequest) {
  window(1000, 0);
  EXPECT_EQ(overflow().aux_bytes, kRequest);
  EXPECT_EQ(newest_aux(), pattern(kRequest, 1000 - kRequest));
}

TEST_F(WindowTest, AnEmptyWindowGivesSizeZero) {
  window(64, 0);
  window(0, 0);
  EXPECT_EQ(overflow().aux_bytes, 0u);
}

TEST_F(WindowTest, StartAndStopKeepASessionWithoutRegisters) {
  kIntelPt.start(context_.leader(), 0);
  window(40, 0);
  kIntelPt.stop(context_.leader(), 0);
  kIntelPt.start(context_.leader(), 0);  // goes on with the window
  EXPECT_EQ(overflow().aux_bytes, 40u);
  kIntelPt.stop(context_.leader(), kEfUpdate);
  kIntelPt.start(context_.leader(), 0);  // a new one
  EXPECT_EQ(overflow().aux_bytes, 0u);
}

TEST(WindowInPlace, IsBoundToo) {
  PtGroup group;
  group.pt.windowed = true;
  Event& sampler = group.add_sampler(kRequest);
  group.start();
  group.unit.trace(200);
  EXPECT_EQ(group.sample(sampler), traced(0, 200));
  group.stop();
  group.start();
  group.unit.trace(48);
  EXPECT_EQ(group.sample(sampler), traced(200, 248));
  group.stop(0);  // a break: the window goes on
  group.start();
  group.unit.trace(8);
  EXPECT_EQ(group.sample(sampler), traced(200, 256));
  group.stop();
  EXPECT_EQ(group.sample(sampler), traced(200, 256));
}

}  // namespace
}  // namespace auxtrail::pmu
