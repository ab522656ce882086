// The PT PMU in overwrite mode over a scripted unit: pt_event_snapshot_aux with the faults found
// later, configuration, C3, C6, C7.
#include "pmu/intel_pt.h"

#include "event/overflow.h"
#include "pmu/testing/pt_test_support.h"

namespace auxtrail::pmu {
namespace {

using namespace testing;  // NOLINT

constexpr uint64_t kPage = topa::kPageBytes;
constexpr uint32_t kRequest = 256;

// Writes of a register, in order.
std::vector<uint64_t> writes_of(const ScriptedUnit& unit, PtRegister which) {
  std::vector<uint64_t> values;
  for (const ScriptedUnit::Access& access : unit.log) {
    if (access.is_write && access.which == which) values.push_back(access.value);
  }
  return values;
}
uint64_t writes_besides_ctl_and_status(const ScriptedUnit& unit) {
  uint64_t count = 0;
  for (const ScriptedUnit::Access& access : unit.log) {
    count +=
        access.is_write && access.which != PtRegister::kCtl && access.which != PtRegister::kStatus;
  }
  return count;
}

TEST(IntelPtConfig, StartWritesAllAndEverythingElseFlipsTraceEn) {
  PtSetup setup;
  setup.attr.config |= abi::pt_config::kCyc;
  setup.attr.exclude_kernel = 1;
  PtGroup group(setup);
  Event& sampler = group.add_sampler(kRequest);
  EXPECT_EQ(writes_besides_ctl_and_status(group.unit), 0u);  // add configures nothing
  group.start();
  const uint64_t ctl = setup.attr.config | rtit_ctl::kTraceEn | rtit_ctl::kUser | rtit_ctl::kToPA;
  EXPECT_EQ(group.unit.get(PtRegister::kCtl), ctl);
  EXPECT_EQ(writes_of(group.unit, PtRegister::kStatus), std::vector<uint64_t>{0});
  EXPECT_EQ(writes_besides_ctl_and_status(group.unit), 2u);  // where to write
  group.unit.log.clear();

  group.unit.trace(1000);
  group.overflow(sampler);
  pause_aux(group.leader, true);
  pause_aux(group.leader, false);
  EXPECT_EQ(writes_of(group.unit, PtRegister::kCtl),
            (std::vector<uint64_t>{ctl - 1, ctl, ctl - 1, ctl}));
  EXPECT_EQ(writes_besides_ctl_and_status(group.unit), 0u);
  EXPECT_EQ(group.unit.faults, 0);
}

TEST(IntelPtConfig, BitsOfTheEvent) {
  const auto ctl_of = [](uint64_t config, auto change) {
    PtSetup setup;
    setup.attr.config = config;
    change(setup);
    PtGroup group(setup);
    group.start();
    return group.unit.get(PtRegister::kCtl);
  };
  const auto as_is = [](PtSetup&) {};
  constexpr uint64_t kUsual =
      rtit_ctl::kTraceEn | rtit_ctl::kToPA | rtit_ctl::kOs | rtit_ctl::kUser;
  EXPECT_EQ(ctl_of(0, as_is), kUsual | rtit_ctl::kBranchEn);  // older programs have branches always
  EXPECT_EQ(ctl_of(abi::pt_config::kPt, as_is), kUsual);
  EXPECT_EQ(ctl_of(0x2c01, as_is), kUsual | 0x2c00);
  EXPECT_EQ(ctl_of(0x2c01, [](PtSetup& s) { s.attr.exclude_user = 1; }),
            (kUsual | 0x2c00) & ~rtit_ctl::kUser);
  EXPECT_EQ(ctl_of(uint64_t{1} << 55 | 1u << 31, as_is),
            kUsual | rtit_ctl::kBranchEn | uint64_t{1} << 55 | 1u << 31);
  EXPECT_EQ(ctl_of(0, [](PtSetup& s) { s.aux_bytes = kPage; }),
            (kUsual | rtit_ctl::kBranchEn) & ~rtit_ctl::kToPA);  // one page: a single range
}

TEST(IntelPtConfig, WhatTheUnitCannotDoIsEinval) {
  Event event;
  PtContext pt;
  ScriptedUnit least({});
  ScriptedUnit usual(kAllCaps);
  perf_event_attr attr = leader_attr();
  pt.unit = least.unit();
  EXPECT_EQ(event.init(attr, 1, kIntelPt, &pt), 0);  // tsc, noretcomp and branch: anybody can
  attr.config |= abi::pt_config::kCyc;
  EXPECT_EQ(event.init(attr, 1, kIntelPt, &pt), EINVAL);
  pt.unit = {};  // no registers: its owner's business
  EXPECT_EQ(event.init(attr, 1, kIntelPt, &pt), 0);
  pt.unit = usual.unit();
  EXPECT_EQ(event.init(attr, 1, kIntelPt, &pt), 0);
  attr.config = 1u << 2;
  EXPECT_EQ(event.init(attr, 1, kIntelPt, &pt), EINVAL);
  pt.unit = {};
  EXPECT_EQ(event.init(attr, 1, kIntelPt, &pt), EINVAL);
  EXPECT_EQ(event.init(leader_attr(), 1, kIntelPt, nullptr), EINVAL);
}

// Each way of output once: a single range, one table, several tables, one region per table.
struct Output {
  const char* name;
  uint64_t aux_bytes;
  bool multiple_entries;
  uint32_t max_region_shift;
};
void PrintTo(const Output& output, std::ostream* out) { *out << output.name; }

class IntelPtTest : public ::testing::TestWithParam<Output> {
 protected:
  static PtSetup setup_of(const Output& output) {
    PtSetup setup;
    setup.aux_bytes = output.aux_bytes;
    setup.caps.topa_multiple_entries = output.multiple_entries;
    setup.max_region_shift = output.max_region_shift;
    return setup;
  }
  uint64_t aux_bytes() const { return GetParam().aux_bytes; }
  PtGroup group_{setup_of(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(Outputs, IntelPtTest,
                         ::testing::Values(Output{"SingleRange", kPage, true, 12},
                                           Output{"Table", 8 * kPage, true, 12},
                                           Output{"LargeRegions", 16 * kPage, true, 14},
                                           Output{"OneRegion", kPage, false, 12}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(IntelPtTest, C3_NewestBytesThroughManyLaps) {
  Event& sampler = group_.add_sampler(kRequest);
  group_.start();
  int64_t total = 0;
  for (int i = 1; i < 400; ++i) {
    const int64_t count = 997 * i % 9000;
    group_.unit.trace(static_cast<uint64_t>(count));
    total += count;
    ASSERT_EQ(group_.sample(sampler), traced(total - kRequest, total)) << i;
  }
  EXPECT_GT(total, 20 * static_cast<int64_t>(aux_bytes()));
  EXPECT_EQ(group_.unit.faults, 0);
}

TEST_P(IntelPtTest, C3_SizeEqualToTheBufferGivesAllOfIt) {
  const auto size = static_cast<int64_t>(aux_bytes() < 32768 ? aux_bytes() : 32768);
  Event& sampler = group_.add_sampler(static_cast<uint32_t>(size));
  group_.start();
  group_.unit.trace(100);
  EXPECT_EQ(group_.sample(sampler), traced(100 - size, 100));
  group_.unit.trace(3 * aux_bytes());
  const auto total = static_cast<int64_t>(group_.unit.total);
  EXPECT_EQ(group_.sample(sampler), traced(total - size, total));
}

TEST_P(IntelPtTest, C3_BytesThatTheStopPushesOutAreIncluded) {
  Event& sampler = group_.add_sampler(kRequest);
  group_.start();
  group_.unit.trace(1000);
  group_.unit.flush_bytes = 24;
  EXPECT_EQ(group_.sample(sampler), traced(1024 - kRequest, 1024));
}

TEST_P(IntelPtTest, K6_AFullLapBetweenTwoUpdatesReportsAFullBuffer) {
  const auto size = static_cast<int64_t>(aux_bytes() < 32768 ? aux_bytes() : 32768);
  Event& sampler = group_.add_sampler(static_cast<uint32_t>(size));
  group_.start();
  group_.unit.trace(aux_bytes());
  const auto total = static_cast<int64_t>(aux_bytes());
  EXPECT_EQ(group_.sample(sampler), traced(total - size, total));
}

TEST_P(IntelPtTest, TheTraceGoesOnWhereItWasAfterStopAndStart) {
  Event& sampler = group_.add_sampler(kRequest);
  int64_t total = 0;
  for (int i = 0; i < 30; ++i) {
    group_.start();
    group_.unit.trace(1700);
    total += 1700;
    group_.stop(i % 3 == 0 ? 0 : kEfUpdate);
    ASSERT_EQ(group_.sample(sampler), traced(total - kRequest, total)) << i;
  }
}

TEST_P(IntelPtTest, C6_RunningStaysRunningAndStoppedStaysStopped) {
  Event& sampler = group_.add_sampler(kRequest);
  group_.start();
  group_.unit.trace(500);
  EXPECT_EQ(group_.sample(sampler), traced(500 - kRequest, 500));
  EXPECT_TRUE(group_.unit.on());
  EXPECT_FALSE(group_.leader.hw.stopped);
  EXPECT_EQ(group_.control().aux_tail, 0u);
  EXPECT_EQ(group_.control().aux_head, 0u);  // a sample moves no pointer that a reader sees
  group_.stop();
  EXPECT_EQ(group_.control().aux_head, 500u);
  EXPECT_EQ(group_.sample(sampler), traced(500 - kRequest, 500));
  EXPECT_FALSE(group_.unit.on());
  EXPECT_TRUE(group_.leader.hw.stopped);
}

TEST_P(IntelPtTest, C6_ASampleIsNoTransaction) {
  Event& sampler = group_.add_sampler(kRequest);
  group_.start();
  group_.unit.trace(500);
  group_.overflow(sampler);
  EXPECT_TRUE(group_.aux_records().empty());
  group_.stop();
  EXPECT_EQ(group_.aux_records(),
            (std::vector<AuxRecord>{{500, aux_bytes(), PERF_AUX_FLAG_OVERWRITE}}));
}

class IntelPtRules : public ::testing::Test {
 protected:
  PtGroup group_;
  Event& sampler_ = group_.add_sampler(kRequest);
};

TEST_F(IntelPtRules, C4_SizeZeroWhenTheLeaderIsOff) {
  group_.start();
  group_.unit.trace(1000);
  group_.leader.schedule_out();
  group_.unit.log.clear();
  EXPECT_EQ(group_.overflow(sampler_), 0u);
  EXPECT_TRUE(group_.unit.log.empty());  // the unit is not even looked at
}

// stop() clears handle_nmi, then stops the unit. A snapshot that hits in between finds "not
// running" and a unit that runs: it must stop it before copying, and must not start it again.
TEST_F(IntelPtRules, K3_SnapshotBetweenClearingHandleNmiAndStoppingTheUnit) {
  group_.start();
  group_.unit.trace(1000);
  bool once = false, on_after_snapshot = true;
  group_.unit.before = [&](const ScriptedUnit::Access& access) {
    if (once || access.which != PtRegister::kCtl) return;
    once = true;
    ASSERT_FALSE(group_.pt.handle_nmi.load());
    ASSERT_TRUE(group_.unit.on());
    group_.overflow(sampler_);
    on_after_snapshot = group_.unit.on();
  };
  group_.stop();
  EXPECT_TRUE(once);
  EXPECT_FALSE(on_after_snapshot);
  EXPECT_FALSE(group_.unit.on());
  EXPECT_EQ(aux_of(drain(group_.reader).front()), traced(1000 - kRequest, 1000));
}

// The register says "on" before or after ctl says so: a snapshot must not copy from a running unit.
TEST_F(IntelPtRules, ASnapshotNeverCopiesFromARunningUnit) {
  for (const bool after : {false, true}) {
    int hits = 0;
    bool inside = false;
    const auto hit = [&](const ScriptedUnit::Access& access) {
      if (access.which == PtRegister::kOutputBase && !access.is_write) {
        EXPECT_FALSE(group_.unit.on()) << "it looks where the unit is, and the unit moves on";
      }
      if (!access.is_write || inside) return;
      inside = true;
      ++hits;
      group_.unit.trace(8);
      const auto total = static_cast<int64_t>(group_.unit.total);
      EXPECT_EQ(group_.sample(sampler_), traced(total - kRequest, total));
      inside = false;
    };
    (after ? group_.unit.after : group_.unit.before) = hit;
    for (int i = 0; i < 3; ++i) {
      group_.start();
      EXPECT_TRUE(group_.unit.on());
      group_.unit.trace(100);
      group_.stop();
      EXPECT_FALSE(group_.unit.on());
    }
    EXPECT_GT(hits, 10);
    group_.unit.before = group_.unit.after = nullptr;
  }
}

TEST_F(IntelPtRules, K4_StopWithoutUpdateThenStartKeepsTheSession) {
  group_.start();
  group_.unit.trace(40);
  group_.stop(0);
  EXPECT_TRUE(group_.pt.output.is_open());
  group_.start();
  group_.start();  // a second start changes nothing
  group_.unit.trace(2);
  EXPECT_TRUE(group_.aux_records().empty());
  group_.stop(0);
  group_.stop(kEfUpdate);  // the update is not lost
  EXPECT_FALSE(group_.pt.output.is_open());
  EXPECT_EQ(group_.aux_records(),
            (std::vector<AuxRecord>{{42, 8 * kPage, PERF_AUX_FLAG_OVERWRITE}}));
  EXPECT_EQ(group_.area.head(), 42u);
}

TEST_F(IntelPtRules, C7_SecondSamplerOnTheSameLeader) {
  Event& second = group_.add_sampler(kRequest, 102);
  group_.start();
  group_.unit.trace(1000);
  uint64_t inner_aux_size = 1;
  bool once = false;
  group_.unit.before = [&](const ScriptedUnit::Access&) {
    if (once) return;
    once = true;
    inner_aux_size = group_.overflow(second);
  };
  EXPECT_EQ(group_.overflow(sampler_), kRequest);
  EXPECT_EQ(inner_aux_size, 0u);
  const auto records = drain(group_.reader);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(aux_of(records[0]), traced(1000 - kRequest, 1000));
  EXPECT_EQ(aux_of(records[1]), Bytes());
  EXPECT_TRUE(group_.unit.on());
  EXPECT_EQ(group_.sample(second), traced(1000 - kRequest, 1000));
}

bool holds_psb(const Bytes& bytes) {
  const std::array<std::byte, 4> psb{std::byte{2}, std::byte{0x82}, std::byte{2}, std::byte{0x82}};
  return std::search(bytes.begin(), bytes.end(), psb.begin(), psb.end()) != bytes.end();
}

// Upstream, a trace that a snapshot has interrupted goes on without a PSB, and a small sample then
// holds none. (The pattern has 0x02 and 0x82 in it, but not one after the other.)
TEST_F(IntelPtRules, K19_AfterASnapshotTheTraceGoesOnWithAPsb) {
  group_.unit.emits_psb = true;
  group_.start();
  group_.unit.trace(60);
  EXPECT_TRUE(holds_psb(group_.sample(sampler_)));
  for (int i = 0; i < 20; ++i) {
    group_.unit.trace(100 + i);
    ASSERT_TRUE(holds_psb(group_.sample(sampler_))) << i;
  }
  group_.pt.psb_after_snapshot = false;
  group_.unit.trace(1000);
  group_.sample(sampler_);
  group_.unit.trace(300);
  EXPECT_FALSE(holds_psb(group_.sample(sampler_)));
}

TEST_F(IntelPtRules, OneEventPerUnit) {
  Event second;
  ASSERT_EQ(second.init(leader_attr(), 12, kIntelPt, &group_.pt), 0);
  EXPECT_EQ(second.schedule_in(kTid, 0), EBUSY);
  group_.leader.schedule_out();
  EXPECT_EQ(second.schedule_in(kTid, 0), 0);
  close_event(second);
}

TEST_F(IntelPtRules, B5_SamplingNeedsTheOverwriteMode) {
  // The leader's own aux_sample_size is 0, as always; that it is sampled shows in its samplers.
  EXPECT_EQ(leader_attr().aux_sample_size, 0u);
  EXPECT_EQ(kIntelPt.setup_aux(group_.leader, group_.area, false), EINVAL);
  EXPECT_EQ(kIntelPt.setup_aux(group_.leader, group_.area, true), 0);
  PtSetup normal;
  normal.overwrite = false;
  PtGroup unsampled(normal);
  EXPECT_EQ(unsampled.setup_error, 0);
}

TEST_F(IntelPtRules, BytesThatSomebodyLeftInTheAreaAreNotPublished) {
  std::memset(group_.aux(), 0xaa, 8 * kPage);
  group_.pt.area_is_zeroed = false;
  ASSERT_EQ(kIntelPt.setup_aux(group_.leader, group_.area, true), 0);
  group_.start();
  group_.unit.trace(10);
  EXPECT_EQ(group_.sample(sampler_), traced(10 - int64_t{kRequest}, 10));
}

TEST_F(IntelPtRules, RegistersThatNameAnotherPlaceMoveNothing) {
  group_.start();
  group_.unit.trace(600);
  EXPECT_EQ(group_.sample(sampler_), traced(600 - kRequest, 600));
  group_.unit.set(PtRegister::kOutputBase, 0x123000);  // somebody else wrote the register
  EXPECT_EQ(group_.sample(sampler_), traced(600 - kRequest, 600));
  group_.stop();
  EXPECT_EQ(group_.aux_records(),
            (std::vector<AuxRecord>{{600, 0, PERF_AUX_FLAG_OVERWRITE | PERF_AUX_FLAG_PARTIAL}}));
}

TEST(IntelPtRule, WithoutAnAuxAreaNothingStarts) {
  Event lone;
  PtContext pt;
  ScriptedUnit unit(kAllCaps);
  pt.unit = unit.unit();
  ASSERT_EQ(lone.init(leader_attr(), 12, kIntelPt, &pt), 0);
  EXPECT_EQ(lone.schedule_in(kTid, kEfStart), EINVAL);
  EXPECT_TRUE(unit.log.empty());
}

// An area of 8 GiB, and 12 GiB of trace through it: only the last page is ever touched.
TEST(IntelPtRule, K7_AreasOfManyGigabytes) {
  PtSetup setup;
  setup.aux_bytes = uint64_t{8} << 30;
  setup.max_region_shift = 22;
  PtGroup group(setup);
  ASSERT_EQ(group.setup_error, 0);
  Event& sampler = group.add_sampler(kRequest);
  group.start();
  group.unit.skip((uint64_t{4} << 30) - 100);
  group.unit.trace(300);
  auto total = static_cast<int64_t>(group.unit.total);
  EXPECT_EQ(group.sample(sampler), traced(total - kRequest, total));
  EXPECT_EQ(group.area.head(), (uint64_t{4} << 30) + 200);
  group.unit.skip(uint64_t{8} << 30);
  group.unit.trace(300);
  total = static_cast<int64_t>(group.unit.total);
  EXPECT_EQ(group.sample(sampler), traced(total - kRequest, total));
  group.stop();
  EXPECT_EQ(group.control().aux_head, (uint64_t{4} << 30) + 500);
  EXPECT_EQ(group.unit.faults, 0);
}

TEST(IntelPtRule, VmxOperationLeavesAGap) {
  for (const bool traces_there : {false, true}) {
    PtSetup setup;
    setup.caps.vmx = traces_there;
    PtGroup group(setup);
    Event& sampler = group.add_sampler(kRequest);
    const auto flags_of_session = [&] {
      group.stop();
      const auto records = group.aux_records();
      return records.empty() ? ~uint64_t{0} : records.back().flags & PERF_AUX_FLAG_PARTIAL;
    };
    group.start();
    group.unit.trace(500);
    if (!traces_there) group.unit.vmxon();
    pt_handle_vmx(group.pt, true);
    group.unit.log.clear();
    EXPECT_EQ(group.sample(sampler), traced(500 - kRequest, 500));
    if (!traces_there) {
      EXPECT_TRUE(writes_of(group.unit, PtRegister::kCtl).empty());  // would fault
      EXPECT_FALSE(group.unit.on());
    }
    pt_handle_vmx(group.pt, false);
    EXPECT_TRUE(group.unit.on());
    EXPECT_EQ(flags_of_session(), traces_there ? 0 : PERF_AUX_FLAG_PARTIAL);
    // The next session has no gap; one that is started inside has.
    group.start();
    EXPECT_EQ(flags_of_session(), 0u);
    pt_handle_vmx(group.pt, true);
    group.start();
    EXPECT_EQ(group.unit.on(), traces_there);
    pt_handle_vmx(group.pt, false);
    EXPECT_EQ(flags_of_session(), traces_there ? 0 : PERF_AUX_FLAG_PARTIAL);
  }
}

}  // namespace
}  // namespace auxtrail::pmu
