// The PT PMU in normal mode: the whole trace goes through the AUX area to its reader (E1 to E5),
// with interrupts at the watermark, and what happens when the reader is late.
#include <algorithm>
#include <random>

#include "event/overflow.h"
#include "pmu/testing/pt_test_support.h"

namespace auxtrail::pmu {
namespace {

using namespace testing;  // NOLINT

constexpr uint64_t kPage = topa::kPageBytes;

PtSetup normal_mode(uint64_t pages, bool multiple_entries = true, uint64_t watermark = 0) {
  PtSetup setup;
  setup.aux_bytes = pages * kPage;
  setup.overwrite = false;
  setup.watermark = watermark;
  setup.caps.topa_multiple_entries = multiple_entries;
  return setup;
}

// Follows the PERF_RECORD_AUX, takes the bytes out of the area and hands the space back.
class Reader {
 public:
  explicit Reader(PtGroup& group) : group_(group) {}
  // Everything that is told of; the flags of all those records.
  uint64_t read() {
    uint64_t flags = 0;
    for (const AuxRecord& record : group_.aux_records()) {
      flags |= record.flags;
      EXPECT_EQ(record.offset, tail_) << "a gap in the stream of records";
      for (uint64_t i = 0; i < record.size; ++i) {
        stream_.push_back(group_.aux()[(record.offset + i) % group_.area.size_bytes()]);
      }
      tail_ = record.offset + record.size;
    }
    EXPECT_EQ(group_.control().aux_head, tail_);
    __atomic_store_n(&group_.control().aux_tail, tail_, __ATOMIC_RELEASE);
    return flags;
  }
  [[nodiscard]] const Bytes& stream() const { return stream_; }

 private:
  PtGroup& group_;
  uint64_t tail_ = 0;
  Bytes stream_;
};

TEST(IntelPtFullTrace, AReaderThatKeepsUpGetsEveryByte) {
  for (const uint64_t pages : {4, 8, 64}) {
    PtGroup group(normal_mode(pages));
    ASSERT_EQ(group.setup_error, 0);
    Reader reader(group);
    std::mt19937_64 random(pages);
    uint64_t flags = 0;
    group.start();
    for (int i = 0; i < 2000; ++i) {
      group.unit.trace(random() % 700);
      if (random() % 97 == 0) {
        group.stop(random() % 2 == 0 ? 0 : kEfUpdate);
        group.start();
      }
      flags |= reader.read();
      ASSERT_FALSE(group.leader.hw.stopped) << pages << ' ' << i;
    }
    group.stop();
    flags |= reader.read();
    EXPECT_EQ(flags, 0u);
    EXPECT_GT(group.unit.total, 500'000u);
    EXPECT_EQ(reader.stream(), traced(0, static_cast<int64_t>(group.unit.total)));
    EXPECT_EQ(group.unit.faults, 0);
  }
}

TEST(IntelPtFullTrace, E4_TheUnitInterruptsAtTheWatermark) {
  PtGroup group(normal_mode(16, true, 4 * kPage));
  group.start();
  group.unit.trace(4 * kPage - 1);
  EXPECT_TRUE(group.aux_records().empty());
  EXPECT_FALSE(group.ring.take_poll());
  group.unit.trace(101);
  EXPECT_EQ(group.aux_records(), (std::vector<AuxRecord>{{0, 4 * kPage + 100, 0}}));
  EXPECT_TRUE(group.ring.take_poll());
  EXPECT_TRUE(group.unit.on());  // and goes on
  group.unit.trace(4 * kPage - 101);
  EXPECT_FALSE(group.ring.take_poll());
  group.unit.trace(1);
  EXPECT_EQ(group.aux_records(), (std::vector<AuxRecord>{{4 * kPage + 100, 4 * kPage - 100, 0}}));
  EXPECT_TRUE(group.ring.take_poll());
}

TEST(IntelPtFullTrace, E5_ALateReaderMakesTheUnitStopAndTheEventGoOff) {
  PtGroup group(normal_mode(8));
  Reader reader(group);
  group.start();
  for (int i = 0; i < 40; ++i) group.unit.trace(1000);  // nobody reads: interrupts, then the end
  EXPECT_FALSE(group.unit.on());
  EXPECT_TRUE(group.leader.hw.stopped);
  EXPECT_EQ(group.unit.total, 8 * kPage);  // every byte of the area was used, and none twice
  EXPECT_TRUE(group.leader.pending_disable.load());
  EXPECT_TRUE(group.ring.take_poll());
  EXPECT_EQ(reader.read(), uint64_t{PERF_AUX_FLAG_TRUNCATED});
  EXPECT_EQ(reader.stream(), traced(0, 8 * kPage));
  ASSERT_TRUE(run_pending(group.leader));
  EXPECT_EQ(group.leader.state, EventState::kOff);
  // Enabled again it goes on where it was.
  group.leader.state = EventState::kInactive;
  ASSERT_EQ(group.leader.schedule_in(kTid, kEfStart), 0);
  group.unit.trace(500);
  group.stop();
  EXPECT_EQ(reader.read(), 0u);
  EXPECT_EQ(reader.stream(), traced(0, 8 * kPage + 500));
}

TEST(IntelPtFullTrace, K6_FromEmptyToFullBetweenTwoUpdatesIsFull) {
  // From the area's begin, and from elsewhere: the unit itself goes round there, and the place
  // where it stops is the one where it began.
  for (const uint64_t first : {0, 3, 7}) {
    PtGroup group(normal_mode(8));
    Reader reader(group);
    group.unit.interrupt = nullptr;  // lost; stop() has to find out
    group.start();
    group.unit.trace(first * kPage);
    group.stop();
    EXPECT_EQ(reader.read(), 0u);
    group.start();
    group.unit.trace(20 * kPage);
    EXPECT_EQ(group.unit.total, (first + 8) * kPage);
    group.stop();
    EXPECT_EQ(group.aux_records(),
              (std::vector<AuxRecord>{{first * kPage, 8 * kPage, PERF_AUX_FLAG_TRUNCATED}}));
  }
}

// A unit that has run out of room, and a stop that does not tell: the next start does.
TEST(IntelPtFullTrace, StartAfterAStopWithoutUpdateTellsWhatWasTraced) {
  PtGroup group(normal_mode(8));
  Reader reader(group);
  group.unit.interrupt = nullptr;
  group.start();
  group.unit.trace(20 * kPage);
  group.stop(0);
  EXPECT_TRUE(group.aux_records().empty());
  group.start();
  EXPECT_FALSE(group.unit.on());  // the area is full
  EXPECT_EQ(reader.read(), uint64_t{PERF_AUX_FLAG_TRUNCATED});
  EXPECT_EQ(reader.stream(), traced(0, 8 * kPage));
  group.start();
  EXPECT_TRUE(group.unit.on());
}

TEST(IntelPtFullTrace, NothingTracedIsNoRecord) {
  PtGroup group(normal_mode(8));
  group.start();
  group.stop();
  group.start();
  group.stop();
  EXPECT_TRUE(group.aux_records().empty());
}

TEST(IntelPtFullTrace, E1_AFullAreaRefusesTheStart) {
  PtGroup group(normal_mode(8));
  group.start();
  for (int i = 0; i < 40; ++i) group.unit.trace(1000);
  group.leader.schedule_out();
  group.leader.pending_disable.store(false);
  EXPECT_EQ(group.leader.schedule_in(kTid, kEfStart), EINVAL);
  EXPECT_TRUE(group.leader.pending_disable.load());
  // Less than the rest of the region where the head is: a unit cannot stop in the middle.
  group.control().aux_tail = 100;
  EXPECT_EQ(group.leader.schedule_in(kTid, kEfStart), EINVAL);
  EXPECT_EQ(group.aux_records().back(), (AuxRecord{8 * kPage, 0, PERF_AUX_FLAG_TRUNCATED}));
  group.control().aux_tail = kPage;
  EXPECT_EQ(group.leader.schedule_in(kTid, kEfStart), 0);
  EXPECT_TRUE(group.unit.on());
}

TEST(IntelPtFullTrace, E1_AGarbageTailCorruptsNothing) {
  for (const uint64_t tail : {~uint64_t{0}, uint64_t{1} << 40, uint64_t{12345}}) {
    PtGroup group(normal_mode(8));
    group.start();
    group.unit.trace(5000);
    group.control().aux_tail = tail;
    group.stop();
    group.start();
    group.unit.trace(100'000);
    group.stop();
    EXPECT_LE(group.unit.total, 5000 + 8 * kPage);
    for (const AuxRecord& record : group.aux_records()) EXPECT_LE(record.size, 8 * kPage);
    EXPECT_EQ(group.unit.faults, 0);
  }
}

// Units with one region per table stop at every region and interrupt shortly before its end; what
// is left of it becomes padding.
TEST(IntelPtFullTrace, OneRegionTablesArePaddedAtTheirEnds) {
  PtGroup group(normal_mode(4, /*multiple_entries=*/false));
  ASSERT_EQ(group.setup_error, 0);
  Reader reader(group);
  group.start();
  while (group.unit.total < 100'000) {
    group.unit.trace(50);
    ASSERT_EQ(reader.read(), 0u);
    ASSERT_FALSE(group.leader.hw.stopped);
  }
  group.stop();
  reader.read();
  Bytes stream = reader.stream();
  const auto padding = static_cast<size_t>(std::count(stream.begin(), stream.end(), std::byte{0}));
  EXPECT_GT(padding, 20 * 200u);
  std::erase(stream, std::byte{0});  // the pattern has none
  EXPECT_EQ(stream, traced(0, static_cast<int64_t>(group.unit.total)));
}

TEST(IntelPtFullTrace, OneRegionTablesThatRunFullAreTruncated) {
  PtGroup group(normal_mode(4, /*multiple_entries=*/false));
  Reader reader(group);
  group.start();
  group.unit.interrupt = nullptr;  // too late: the region is full before
  group.unit.trace(2 * kPage);
  EXPECT_EQ(group.unit.total, kPage);
  pt_interrupt(group.pt);
  EXPECT_EQ(reader.read(), uint64_t{PERF_AUX_FLAG_TRUNCATED});
  EXPECT_EQ(reader.stream(), traced(0, kPage));
  EXPECT_TRUE(group.unit.on());  // in the next region
  group.unit.trace(10);
  group.stop();
  reader.read();
  EXPECT_EQ(reader.stream(), traced(0, kPage + 10));
}

TEST(IntelPtFullTrace, AnErrorOfTheUnitIsAGap) {
  PtGroup group(normal_mode(8));
  group.start();
  group.unit.trace(100);
  group.unit.set(PtRegister::kStatus, rtit_status::kError);
  group.stop();
  EXPECT_EQ(group.unit.get(PtRegister::kStatus) & rtit_status::kError, 0u);
  EXPECT_EQ(group.aux_records(), (std::vector<AuxRecord>{{0, 100, PERF_AUX_FLAG_PARTIAL}}));
  group.start();
  EXPECT_TRUE(group.unit.on());
}

TEST(IntelPtFullTrace, AnInterruptThatIsLeftOverDoesNothing) {
  PtGroup group(normal_mode(8));
  pt_interrupt(group.pt);  // never started
  group.start();
  group.unit.trace(100);
  int hits = 0;
  group.unit.before = [&](const ScriptedUnit::Access& access) {
    if (access.is_write && access.which == PtRegister::kCtl && hits++ == 0) pt_interrupt(group.pt);
  };
  group.stop();
  EXPECT_EQ(hits, 1);
  EXPECT_FALSE(group.unit.on());
  EXPECT_EQ(group.aux_records(), (std::vector<AuxRecord>{{0, 100, 0}}));
  pt_interrupt(group.pt);
  EXPECT_FALSE(group.unit.on());
  EXPECT_TRUE(group.aux_records().empty());
}

TEST(IntelPtFullTrace, NoSamplesFromNormalMode) {
  PtGroup group(normal_mode(8));
  perf_event_attr attr = sampler_attr(kUsualSampleType, 256);
  Event sampler;
  ASSERT_EQ(sampler.init(attr, 101, kSoftwareTrigger, nullptr), 0);
  EXPECT_EQ(get_aux_event(sampler, &group.leader), AuxLink::kNotOverwrite);
  group.start();
  group.unit.log.clear();
  OutputHandle handle;
  EXPECT_EQ(kIntelPt.snapshot_aux(group.leader, handle, 256), 0);
  EXPECT_TRUE(group.unit.log.empty());
}

// 4 GiB in one session, and an area of 8 GiB that goes from empty to full: offsets past 32 bits.
TEST(IntelPtFullTrace, K7_AreasOfManyGigabytes) {
  PtSetup setup = normal_mode(uint64_t{8} << 18, true, uint64_t{5} << 30);
  setup.max_region_shift = 22;
  PtGroup group(setup);
  ASSERT_EQ(group.setup_error, 0);
  group.start();
  group.unit.skip((uint64_t{4} << 30) + 5);
  group.stop();
  EXPECT_EQ(group.aux_records(), (std::vector<AuxRecord>{{0, (uint64_t{4} << 30) + 5, 0}}));
  group.control().aux_tail = group.control().aux_head;
  group.unit.interrupt = nullptr;
  group.start();
  group.unit.skip(uint64_t{20} << 30);
  group.stop();
  const uint64_t begin = (uint64_t{4} << 30) + 5;
  const uint64_t whole_regions = (uint64_t{8} << 30) - 5;  // its begin is inside of one
  EXPECT_EQ(group.aux_records(),
            (std::vector<AuxRecord>{{begin, whole_regions, PERF_AUX_FLAG_TRUNCATED}}));
}

}  // namespace
}  // namespace auxtrail::pmu
