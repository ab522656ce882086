// The PT PMU over a scripted unit: pt_event_snapshot_aux with the faults found later, C3, C6, C7,
// windows.
#include "pmu/intel_pt.h"

#include <gtest/gtest.h>

#include <optional>

#include "event/test_support.h"
#include "event/thread_context.h"
#include "pmu/scripted_unit.h"

namespace auxtrail::pmu {
namespace {

using namespace event;
using namespace event::testing;
using testing::ScriptedUnit;

constexpr uint64_t kAux = 4096;
constexpr uint32_t kRequest = 256;

class IntelPtTest : public ::testing::Test {
 protected:
  IntelPtTest() { open(); }
  void open() {
    pt_.unit = unit_.unit();
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
    ASSERT_EQ(context_.init(config), 0);
  }
  void start() { kIntelPt.start(context_.leader(), 0); }
  void stop(uint32_t flags = kEfUpdate) { kIntelPt.stop(context_.leader(), flags); }
  OverflowResult overflow() { return context_.overflow({0x401000, 4700, kTid, 1, 0, 1, 0}); }
  // The AUX bytes of the newest record in the ring; nothing if there is none.
  std::optional<Bytes> newest_aux() {
    const auto records = drain(reader_);
    if (records.empty()) return std::nullopt;
    return aux_of(records.back());
  }
  static Bytes aux_of(const Bytes& record) {
    Fields fields(record);
    (void)fields.bytes(48);
    const uint64_t size = fields.u64();
    EXPECT_EQ(fields.left(), size);
    return fields.bytes(size);
  }
  // What the unit traced from position `from` up to `to`, zeros before 0.
  static Bytes traced(int64_t from, int64_t to) {
    Bytes bytes;
    for (int64_t at = from; at < to; ++at) {
      bytes.push_back(at < 0 ? std::byte{0} : static_cast<std::byte>(at % 251 + 1));
    }
    return bytes;
  }

  perf_event_attr leader_ = leader_attr();
  perf_event_attr sampler_ = sampler_attr(kUsualSampleType, kRequest);
  Memory memory_{1 << 16, kAux};
  ScriptedUnit unit_{memory_.aux(), kAux};
  PtContext pt_;
  ThreadContext context_;
  RingReader reader_ = memory_.reader();
};

TEST_F(IntelPtTest, StartConfiguresOnceAndSnapshotsOnlyFlipTraceEn) {
  start();
  EXPECT_EQ(unit_.log, "cs");
  EXPECT_EQ(unit_.config_value, leader_.config);
  unit_.trace(1000);
  overflow();
  EXPECT_EQ(unit_.log, "csts");
  stop();
  EXPECT_EQ(unit_.log, "cstst");
}

TEST_F(IntelPtTest, C3_NewestBytesThroughManyLaps) {
  start();
  int64_t total = 0;
  for (int i = 1; i < 400; ++i) {
    unit_.trace(37 * i % 1500);
    total += 37 * i % 1500;
    ASSERT_EQ(overflow().aux_bytes, kRequest);
    ASSERT_EQ(newest_aux(), traced(total - kRequest, total)) << i;
  }
}

TEST_F(IntelPtTest, C3_SizeEqualToTheBufferGivesAllOfIt) {
  sampler_.aux_sample_size = kAux;
  open();
  start();
  unit_.trace(100);
  EXPECT_EQ(overflow().aux_bytes, kAux);
  EXPECT_EQ(newest_aux(), traced(100 - int64_t{kAux}, 100));
  unit_.trace(3 * kAux);
  EXPECT_EQ(overflow().aux_bytes, kAux);
  EXPECT_EQ(newest_aux(), traced(2 * kAux + 100, 3 * kAux + 100));
}

TEST_F(IntelPtTest, C3_BytesThatTheStopPushesOutAreIncluded) {
  start();
  unit_.trace(1000);
  unit_.flush_bytes = 24;
  overflow();
  EXPECT_EQ(newest_aux(), traced(1024 - kRequest, 1024));
}

TEST_F(IntelPtTest, AFullLapBetweenTwoUpdatesReportsAFullBuffer) {
  sampler_.aux_sample_size = kAux;
  open();
  start();
  unit_.trace(kAux);
  overflow();
  EXPECT_EQ(newest_aux(), traced(0, kAux));
}

TEST_F(IntelPtTest, C4_SizeZeroWhenTheLeaderIsOff) {
  start();
  unit_.trace(1000);
  context_.leader().schedule_out();
  unit_.log.clear();
  EXPECT_EQ(overflow().outcome, Outcome::kWritten);
  EXPECT_EQ(newest_aux(), Bytes());
  EXPECT_EQ(unit_.log, "");  // the unit is not even touched
}

TEST_F(IntelPtTest, C6_RunningStaysRunning) {
  start();
  unit_.trace(500);
  overflow();
  EXPECT_TRUE(unit_.on);
  EXPECT_FALSE(context_.leader().hw.stopped);
  EXPECT_EQ(memory_.control()->aux_tail, 0u);
  EXPECT_EQ(memory_.control()->aux_head, 0u);  // a sample moves no pointer that a reader sees
}

TEST_F(IntelPtTest, C6_StoppedStaysStopped) {
  start();
  unit_.trace(500);
  stop();
  overflow();
  EXPECT_FALSE(unit_.on);
  EXPECT_TRUE(context_.leader().hw.stopped);
  EXPECT_EQ(newest_aux(), traced(500 - kRequest, 500));
}

TEST_F(IntelPtTest, C6_PausedStaysPaused) {
  pt_.windowed = true;
  start();
  unit_.trace(100);
  stop(/*flags=*/0);  // a pause: the session goes on
  overflow();
  EXPECT_FALSE(unit_.on);
  EXPECT_EQ(newest_aux(), [] {
    auto b = traced(0, 100);
    b.resize(104);
    return b;
  }());
  start();
  unit_.trace(20);
  overflow();
  EXPECT_TRUE(unit_.on);
  EXPECT_EQ(newest_aux(), traced(0, 120));
}

// stop() clears handle_nmi, then stops the unit. A snapshot that hits in between finds "not
// running" and a unit that runs: it must stop it before copying, and must not start it again.
TEST_F(IntelPtTest, SnapshotBetweenClearingHandleNmiAndStoppingTheUnit) {
  start();
  unit_.trace(1000);
  bool once = false;
  bool on_after_snapshot = true;
  unit_.before_stop = [&] {
    if (once) return;
    once = true;
    ASSERT_FALSE(pt_.handle_nmi.load());
    ASSERT_TRUE(unit_.on);
    unit_.log.clear();
    overflow();
    on_after_snapshot = unit_.on;
  };
  stop();
  EXPECT_FALSE(on_after_snapshot);
  EXPECT_FALSE(unit_.on);
  EXPECT_EQ(unit_.log, "tt");  // the snapshot's and then stop's own
  EXPECT_EQ(newest_aux(), traced(1000 - kRequest, 1000));
  EXPECT_EQ(context_.aux().written(), 1000u);
}

TEST_F(IntelPtTest, SnapshotBetweenSettingHandleNmiAndStartingTheUnit) {
  bool once = false;
  unit_.before_start = [&] {
    if (once) return;
    once = true;
    ASSERT_TRUE(pt_.handle_nmi.load());
    overflow();
  };
  start();
  EXPECT_TRUE(unit_.on);
  EXPECT_EQ(newest_aux(), Bytes(kRequest));
}

TEST_F(IntelPtTest, StopWithoutUpdateThenStartKeepsTheSession) {
  pt_.windowed = true;
  start();
  const uint64_t begin = pt_.window_start;
  unit_.trace(40);
  stop(0);
  EXPECT_TRUE(pt_.session_open);
  start();
  EXPECT_EQ(pt_.window_start, begin);
  start();  // a second start changes nothing
  EXPECT_EQ(unit_.log, "cstcs");
  stop(kEfUpdate);
  EXPECT_FALSE(pt_.session_open);
  start();
  EXPECT_EQ(pt_.window_start, begin + 40);
}

TEST_F(IntelPtTest, C7_OverflowNestedInTheUnitsStop) {
  start();
  unit_.trace(1000);
  int depth = 0;
  OverflowResult inner;
  unit_.after_stop = [&] {
    if (depth++ == 0) inner = overflow();
  };
  const OverflowResult outer = overflow();
  EXPECT_EQ(depth, 1);  // the inner sample did not touch the unit
  EXPECT_EQ(outer.aux_bytes, kRequest);
  EXPECT_EQ(inner.outcome, Outcome::kWritten);
  EXPECT_EQ(inner.aux_bytes, 0u);
  EXPECT_TRUE(unit_.on);
  const auto records = drain(reader_);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(aux_of(records[0]), traced(1000 - kRequest, 1000));
  EXPECT_EQ(aux_of(records[1]), Bytes());
}

TEST_F(IntelPtTest, C7_SecondSamplerOnTheSameLeader) {
  Event second;
  ASSERT_EQ(second.init(sampler_, 102, kSoftwareTrigger, nullptr), 0);
  ASSERT_EQ(get_aux_event(second, &context_.leader()), AuxLink::kOk);
  second.ring = &context_.ring();
  ASSERT_EQ(second.schedule_in(kTid, 0), 0);
  start();
  unit_.trace(1000);
  SampleData data = usual_data();
  bool once = false;
  unit_.before_stop = [&] {
    if (once) return;
    once = true;
    EXPECT_EQ(event_output(second, data), Outcome::kWritten);
  };
  EXPECT_EQ(overflow().aux_bytes, kRequest);
  EXPECT_EQ(data.aux_size, 0u);
  drain(reader_);
  EXPECT_EQ(event_output(second, data), Outcome::kWritten);
  EXPECT_EQ(newest_aux(), traced(1000 - kRequest, 1000));
  close_event(second);
}

TEST_F(IntelPtTest, SamplingNeedsTheOverwriteMode) {
  // The leader's own aux_sample_size is 0, as always; that it is sampled shows in its samplers.
  EXPECT_EQ(leader_.aux_sample_size, 0u);
  EXPECT_EQ(kIntelPt.setup_aux(context_.leader(), context_.aux(), false), EINVAL);
  EXPECT_EQ(kIntelPt.setup_aux(context_.leader(), context_.aux(), true), 0);
  Event unsampled;
  PtContext other;
  ASSERT_EQ(unsampled.init(leader_, 12, kIntelPt, &other), 0);
  EXPECT_EQ(kIntelPt.setup_aux(unsampled, context_.aux(), false), 0);
}

TEST_F(IntelPtTest, OneEventPerUnit) {
  Event second;
  ASSERT_EQ(second.init(leader_, 12, kIntelPt, &pt_), 0);
  EXPECT_EQ(second.schedule_in(kTid, 0), EBUSY);
  context_.shutdown();
  EXPECT_EQ(second.schedule_in(kTid, 0), 0);
  close_event(second);
}

TEST_F(IntelPtTest, WithoutAnAuxAreaNothingStarts) {
  Event lone;
  PtContext pt;
  ScriptedUnit unit(memory_.aux(), kAux);
  pt.unit = unit.unit();
  ASSERT_EQ(lone.init(leader_, 12, kIntelPt, &pt), 0);
  EXPECT_EQ(lone.schedule_in(kTid, kEfStart), EINVAL);
  EXPECT_EQ(unit.log, "");
  Event contextless;
  EXPECT_EQ(contextless.init(leader_, 13, kIntelPt, nullptr), EINVAL);
}

// The software unit in windowed mode: no registers, packets appended with write().
class WindowTest : public IntelPtTest {
 protected:
  WindowTest() {
    pt_.unit = {};
    pt_.windowed = true;
  }
  void window(size_t bytes, size_t first) {
    pt_.begin_window();
    const Bytes packets = pattern(bytes, first);
    context_.aux().write(packets.data(), packets.size());
  }
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

TEST_F(WindowTest, AWindowInPlaceIsBoundToo) {
  pt_.unit = unit_.unit();
  start();
  unit_.trace(200);
  stop();
  start();
  unit_.trace(48);
  stop();
  EXPECT_EQ(overflow().aux_bytes, 48u);
  EXPECT_EQ(newest_aux(), traced(200, 248));
}

}  // namespace
}  // namespace auxtrail::pmu
