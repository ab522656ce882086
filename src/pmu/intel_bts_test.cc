// The BTS PMU: overwrite and normal mode over a scripted debug store, and sampling, which one table
// refuses and the other adds.
#include "pmu/intel_bts.h"

#include <random>

#include "event/overflow.h"
#include "pmu/testing/bts_test_support.h"

namespace auxtrail::pmu {
namespace {

using namespace testing;  // NOLINT

TEST(IntelBts, A10_WithoutAddedSupportItRefusesSamplers) {
  BtsGroup group(kIntelBts, 4, true);
  Event sampler;
  ASSERT_EQ(sampler.init(sampler_attr(kUsualSampleType, 240), 101, kSoftwareTrigger, nullptr), 0);
  EXPECT_EQ(get_aux_event(sampler, &group.leader), AuxLink::kNoSnapshot);
  EXPECT_EQ(to_errno(AuxLink::kNoSnapshot), EINVAL);
  EXPECT_EQ(group.leader.refcount.load(), 1u);
  EXPECT_EQ(sampler.aux_event, nullptr);
  close_event(sampler);
}

TEST(IntelBts, C3_SamplesOfTheSamplingVariantHoldTheNewestRecords) {
  for (const uint32_t size : {240, 256, 232, 16, 4096}) {
    BtsGroup group(kIntelBtsSampling, 4, true);
    Event& sampler = group.add_sampler(size);
    group.start();
    EXPECT_EQ(group.sample(sampler), newest(size, 0));
    std::mt19937_64 random(size);
    for (int i = 0; i < 200; ++i) {
      group.unit.branches(random() % 90);
      ASSERT_EQ(group.sample(sampler), newest(size, group.unit.total)) << size << ' ' << i;
      ASSERT_TRUE(group.unit.on());
    }
    EXPECT_GT(group.unit.total, 4 * 4 * 4096 / kBtsRecordBytes);  // laps
    EXPECT_EQ(group.unit.dropped, 0u);
  }
}

TEST(IntelBts, C3_TheWholeAreaIsAllItsRecords) {
  BtsGroup group(kIntelBtsSampling, 2, true);
  Event& sampler = group.add_sampler(8192);
  group.start();
  group.unit.branches(1000);
  const Bytes whole = group.sample(sampler);
  EXPECT_EQ(whole, newest(8192, 1000));
}

TEST(IntelBts, C6_SamplingChangesNothing) {
  BtsGroup group(kIntelBtsSampling, 4, true);
  Event& sampler = group.add_sampler(240);
  group.start();
  group.unit.branches(10);
  group.sample(sampler);
  EXPECT_TRUE(group.unit.on());
  EXPECT_EQ(group.control().aux_head | group.control().aux_tail, 0u);
  group.stop();
  EXPECT_EQ(group.sample(sampler), newest(240, 10));
  EXPECT_FALSE(group.unit.on());
}

// As the PT PMU: a snapshot at either side of each switching on or off. It finds the newest
// records, never leaves a stopped unit on, and a running one off.
TEST(IntelBts, C7_ASnapshotAnywhere) {
  for (const bool after : {false, true}) {
    BtsGroup group(kIntelBtsSampling, 4, true);
    Event& sampler = group.add_sampler(240);
    bool inside = false;
    int hits = 0;
    (after ? group.unit.after : group.unit.before) = [&](uint64_t) {
      if (inside) return;
      inside = true;
      ++hits;
      group.unit.branches(1);
      EXPECT_EQ(group.sample(sampler), newest(240, group.unit.total));
      inside = false;
    };
    for (int i = 0; i < 5; ++i) {
      group.start();
      EXPECT_TRUE(group.unit.on());
      group.unit.branches(300);
      group.stop(i % 2 == 0 ? 0 : kEfUpdate);
      EXPECT_FALSE(group.unit.on());
      inside = true;
      EXPECT_EQ(group.sample(sampler), newest(240, group.unit.total));
      inside = false;
    }
    EXPECT_GE(hits, 10);
  }
}

TEST(IntelBts, E3_OverwriteModeTellsTheOffset) {
  BtsGroup group(kIntelBts, 4, true);
  group.start();
  EXPECT_EQ(group.unit.bits(), debugctl::kTr | debugctl::kBts);  // no interrupt, goes round
  group.unit.branches(1000);
  group.stop();
  const uint64_t used = 4 * 4096 / kBtsRecordBytes * kBtsRecordBytes;
  EXPECT_EQ(group.control().aux_head, 1000 * kBtsRecordBytes % used);
  const auto records = drain(group.reader);
  ASSERT_EQ(records.size(), 1u);
  Fields fields(records[0]);
  (void)fields.u64();
  EXPECT_EQ(fields.u64(), 4 * 4096u);
  EXPECT_EQ(fields.u64(), uint64_t{PERF_AUX_FLAG_OVERWRITE});
  EXPECT_TRUE(group.unit.ds == BtsGroup::kForeign);  // given back as it was
}

TEST(IntelBts, E2_AReaderThatKeepsUpGetsEveryBranch) {
  for (const uint64_t pages : {4, 16}) {
    BtsGroup group(kIntelBts, pages, false);
    std::vector<BtsRecord> seen;
    std::mt19937_64 random(pages);
    uint64_t flags = 0;
    group.start();
    EXPECT_EQ(group.unit.bits(), debugctl::kTr | debugctl::kBts | debugctl::kBtint);
    for (int i = 0; i < 3000; ++i) {
      group.unit.branches(random() % 60);
      if (random() % 101 == 0) {
        group.stop(random() % 2 == 0 ? 0 : kEfUpdate);
        group.start();
      }
      flags |= group.read(seen);
      ASSERT_FALSE(group.leader.hw.stopped) << i;
    }
    group.stop();
    flags |= group.read(seen);
    EXPECT_EQ(flags, 0u);
    EXPECT_EQ(group.unit.dropped, 0u);
    EXPECT_EQ(seen, branches(1, group.unit.total));
    EXPECT_TRUE(group.unit.ds == BtsGroup::kForeign);
  }
}

TEST(IntelBts, E4_InterruptsNearTheWatermark) {
  BtsGroup group(kIntelBts, 16, false, 8192);
  group.start();
  std::vector<BtsRecord> seen;
  while (seen.empty()) {
    group.unit.branches(1);
    group.read(seen);
    ASSERT_LT(group.unit.total, 2000u);
  }
  EXPECT_GE(seen.size() * kBtsRecordBytes, 8192u);
  EXPECT_LE(seen.size() * kBtsRecordBytes, 8192 + 2 * kBtsRecordBytes);
  EXPECT_TRUE(group.ring.take_poll());
}

TEST(IntelBts, E5_ALateReaderMakesItTruncatedAndOff) {
  BtsGroup group(kIntelBts, 4, false);
  group.start();
  for (int i = 0; i < 400 && !group.leader.hw.stopped; ++i) group.unit.branches(10);
  EXPECT_TRUE(group.leader.hw.stopped);
  EXPECT_FALSE(group.unit.on());
  EXPECT_TRUE(group.leader.pending_disable.load());
  std::vector<BtsRecord> seen;
  group.read(seen);
  EXPECT_EQ(seen, branches(1, seen.size()));
  EXPECT_GT(seen.size() * kBtsRecordBytes, 3 * 4096u);
  EXPECT_TRUE(run_pending(group.leader));
  EXPECT_TRUE(group.unit.ds == BtsGroup::kForeign);

  BtsGroup late(kIntelBts, 4, false);
  late.unit.interrupt = nullptr;  // too late
  late.start();
  late.unit.branches(5000);
  EXPECT_GT(late.unit.dropped, 0u);
  late.stop();
  seen.clear();
  EXPECT_EQ(late.read(seen), uint64_t{PERF_AUX_FLAG_TRUNCATED});
  EXPECT_EQ(seen, branches(1, seen.size()));
}

TEST(IntelBts, InterruptsThatAreNotForIt) {
  BtsGroup group(kIntelBts, 4, false);
  EXPECT_FALSE(bts_interrupt(group.bts));
  group.start();
  group.unit.branches(3);
  EXPECT_FALSE(bts_interrupt(group.bts));
  EXPECT_TRUE(group.unit.on());
  group.stop();
  EXPECT_FALSE(bts_interrupt(group.bts));
  BtsGroup circular(kIntelBts, 4, true);
  circular.start();
  circular.unit.branches(5000);
  EXPECT_FALSE(bts_interrupt(circular.bts));
}

TEST(IntelBts, PrivilegesOfTheEvent) {
  BtsGroup group(kIntelBts, 4, true);
  group.leader.attr.exclude_kernel = 1;
  group.start();
  EXPECT_EQ(group.unit.bits(), debugctl::kTr | debugctl::kBts | debugctl::kBtsOffOs);
  group.stop();
  EXPECT_EQ(group.unit.bits(), 0u);
  group.leader.attr.exclude_kernel = 0;
  group.leader.attr.exclude_user = 1;
  group.start();
  EXPECT_EQ(group.unit.bits(), debugctl::kTr | debugctl::kBts | debugctl::kBtsOffUser);
}

TEST(IntelBts, OneEventAndAnAreaAreNeeded) {
  BtsGroup group(kIntelBts, 4, true);
  Event second;
  ASSERT_EQ(second.init(leader_attr(), 12, kIntelBts, &group.bts), 0);
  EXPECT_EQ(second.schedule_in(kTid, 0), EBUSY);
  close_event(second);
  BtsContext without_area;
  without_area.unit = group.unit.unit();
  ASSERT_EQ(second.init(leader_attr(), 12, kIntelBts, &without_area), 0);
  EXPECT_EQ(second.schedule_in(kTid, kEfStart), EINVAL);
  EXPECT_EQ(second.init(leader_attr(), 12, kIntelBts, nullptr), EINVAL);
}

}  // namespace
}  // namespace auxtrail::pmu
