// The real PMUs, Intel PT and BTS, through the system calls: a group that samples, full trace,
// inheritance, address filters. Their units are scripted (src/pmu).
#include <poll.h>

#include <cerrno>
#include <map>

#include "perf_event/testing/fixture.h"
#include "pmu/intel_bts.h"
#include "pmu/intel_pt.h"
#include "pmu/scripted_unit.h"
#include "pmu/testing/pt_test_support.h"

namespace auxtrail::perf_event::testing {
namespace {

using event::testing::Bytes;
using pmu::PtRegister;
using pmu::testing::traced;

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr uint32_t kSample = 256;

// A CPU's trace unit for each thread.
struct PtUnit {
  PtUnit() : tables(4 * kPage), scripted(pmu::testing::kAllCaps) {
    pt.unit = scripted.unit();
    pt.tables = tables.tables();
    pt.max_region_shift = pmu::topa::kPageShift;
    pt.area_is_zeroed = true;
    scripted.interrupt = [this] { pmu::pt_interrupt(pt); };
  }
  pmu::testing::Pages tables;
  pmu::testing::ScriptedUnit scripted;
  pmu::PtContext pt;
};

// The kernel has them, so that they live as long as its events.
struct Units {
  PtUnit& of(uint32_t task) {
    auto& unit = pt[task];
    if (unit == nullptr) unit = std::make_unique<PtUnit>();
    return *unit;
  }
  std::map<uint32_t, std::unique_ptr<PtUnit>> pt;
  pmu::BtsContext bts;
};

class PmuTest : public KernelTest {
 protected:
  PmuTest() {
    kernel.add_pmu(pmu::kIntelPt, [u = units_](uint32_t task, int) { return &u->of(task).pt; });
    kernel.add_pmu(pmu::kIntelBts, [u = units_](uint32_t, int) { return &u->bts; });
  }
  PtUnit& unit_of(uint32_t task) { return units_->of(task); }
  pmu::testing::ScriptedUnit& unit() { return unit_of(tid).scripted; }
  static perf_event_attr intel_pt() {
    perf_event_attr attr = attr_of(pmu::kIntelPt.type);
    attr.config = 0x2c01;
    attr.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID;
    attr.sample_id_all = 1;
    return attr;
  }
  // {intel_pt,page-faults} on this thread with a read-only AUX area of 4 pages.
  void open_group(bool inherit = false) {
    perf_event_attr attr = intel_pt();
    attr.inherit = inherit;
    leader = opened(attr, -1, inherit ? 0 : -1);
    perf_event_attr sampler_of_it = sampler(kSample);
    sampler_of_it.inherit = inherit;
    sampling = opened(sampler_of_it, leader, inherit ? 0 : -1);
    ring = map(leader, 17);
    ASSERT_GT(ring, 0);
    ASSERT_EQ(ioctl(sampling, PERF_EVENT_IOC_SET_OUTPUT, static_cast<uint64_t>(leader)), 0);
    aux = map_aux(leader, ring, 4, PROT_READ);
    ASSERT_GT(aux, 0);
    read = reader(ring);
  }
  // The AUX bytes of the one sample since the last look; its thread in `of`.
  Bytes sample(uint32_t* of = nullptr) {
    Bytes bytes;
    int samples = 0;
    for (const Bytes& record : records(read)) {
      if (event::testing::header_of(record).type != PERF_RECORD_SAMPLE) continue;
      ++samples;
      event::testing::Fields fields(record);
      (void)fields.bytes(12);
      const uint32_t thread = fields.u32();
      if (of != nullptr) *of = thread;
      bytes = fields.bytes(fields.u64());
    }
    EXPECT_EQ(samples, 1);
    return bytes;
  }

  std::shared_ptr<Units> units_ = std::make_shared<Units>();
  int leader = -1, sampling = -1;
  long ring = 0, aux = 0;
  event::RingReader read;
};

TEST_F(PmuTest, C3_AGroupSamplesIntelPt) {
  open_group();
  // Opened enabled, but without an area the unit could not start.
  EXPECT_FALSE(unit().on());
  disable(leader);
  enable(leader);
  ASSERT_TRUE(unit().on());
  int64_t total = 0;
  for (int i = 0; i < 50; ++i) {
    unit().trace(700);
    total += 700;
    page_faults(1);
    ASSERT_EQ(sample(), traced(total - kSample, total)) << i;
    ASSERT_TRUE(unit().on());
  }
  disable(leader);
  EXPECT_FALSE(unit().on());
  EXPECT_EQ(unit().faults, 0);
}

TEST_F(PmuTest, B5_AGroupThatSamplesNeedsAReadOnlyArea) {
  leader = opened(intel_pt());
  sampling = opened(sampler(kSample), leader);
  ring = map(leader, 9);
  EXPECT_EQ(map_aux(leader, ring, 4, kReadWrite), -EINVAL);
  EXPECT_GT(map_aux(leader, ring, 4, PROT_READ), 0);
}

TEST_F(PmuTest, A10_BtsRefusesSamplers) {
  leader = opened(attr_of(pmu::kIntelBts.type));
  EXPECT_EQ(open(sampler(kSample), leader), -EINVAL);
  EXPECT_GE(open(sampler(0), leader), 0);
  EXPECT_EQ(open(attr_of(pmu::kIntelBts.type), -1, 1, -1), -EBUSY);  // exclusive, A11
}

TEST_F(PmuTest, UnknownConfigBitsAreEinval) {
  perf_event_attr attr = intel_pt();
  attr.config |= 1u << 2;  // OS: the driver's
  EXPECT_EQ(open(attr), -EINVAL);
}

TEST_F(PmuTest, E2_E5_FullTraceUntilTheReaderIsLate) {
  perf_event_attr attr = intel_pt();
  attr.disabled = 1;
  leader = opened(attr);
  ring = map(leader, 9);
  aux = map_aux(leader, ring, 8, kReadWrite);
  ASSERT_GT(aux, 0);
  read = reader(ring);
  Bytes stream;
  uint64_t flags = 0;
  const auto consume = [&] {
    for (const Bytes& record : records(read)) {
      if (event::testing::header_of(record).type != PERF_RECORD_AUX) continue;
      event::testing::Fields fields(record);
      const uint64_t offset = fields.u64();
      const uint64_t size = fields.u64();
      flags |= fields.u64();
      for (uint64_t i = offset; i < offset + size; ++i) {
        stream.push_back(reinterpret_cast<const std::byte*>(aux)[i % (8 * kPage)]);
      }
    }
    page(ring).aux_tail = page(ring).aux_head;
  };
  enable(leader);
  for (int i = 0; i < 500; ++i) {
    unit().trace(300);
    kernel.run_pending();
    consume();
  }
  EXPECT_EQ(flags, 0u);
  EXPECT_EQ(kernel.poll(tid, leader), POLLIN);
  for (int i = 0; i < 500; ++i) unit().trace(300);
  kernel.run_pending();
  EXPECT_FALSE(unit().on());
  EXPECT_EQ(event(leader).state, event::EventState::kOff);
  EXPECT_EQ(kernel.poll(tid, leader), POLLIN);
  consume();
  EXPECT_EQ(flags, uint64_t{PERF_AUX_FLAG_TRUNCATED});
  enable(leader);
  unit().trace(77);
  disable(leader);
  consume();
  EXPECT_EQ(stream, traced(0, static_cast<int64_t>(unit().total)));
}

TEST_F(PmuTest, B6_UnmappingTheAreaStopsTheUnit) {
  open_group();
  disable(leader);
  enable(leader);
  ASSERT_TRUE(unit().on());
  unit().trace(100);
  unmap(aux, 4);
  EXPECT_FALSE(unit().on());
  page_faults(1);
  EXPECT_EQ(sample(), Bytes());
  disable(leader);
  enable(leader);
  EXPECT_FALSE(unit().on());
}

// The copy in a new thread has a unit of its own, and writes into its parent's area.
TEST_F(PmuTest, C3_InheritedGroupsSampleTheirOwnUnits) {
  open_group(/*inherit=*/true);
  disable(leader);
  enable(leader);
  unit().trace(1000);
  const Tid child = cloned();
  kernel.run(child, 0);
  ASSERT_FALSE(unit().on());
  auto& childs_unit = unit_of(child).scripted;
  ASSERT_TRUE(childs_unit.on());
  childs_unit.trace(400);
  page_faults_of(child, 1);
  uint32_t of = 0;
  EXPECT_EQ(sample(&of), traced(400 - int64_t{kSample}, 400));
  EXPECT_EQ(of, child);
  EXPECT_TRUE(childs_unit.on());
  kernel.run(tid, 0);
  EXPECT_FALSE(childs_unit.on());
  ASSERT_TRUE(unit().on());
  unit().trace(600);
  page_faults(1);
  EXPECT_EQ(sample(&of), traced(1600 - int64_t{kSample}, 1600));
  EXPECT_EQ(of, tid);
  EXPECT_EQ(unit().faults + childs_unit.faults, 0);
}

TEST_F(PmuTest, FiltersReachTheUnitAndThoseOfInheritedEvents) {
  open_group(/*inherit=*/true);
  disable(leader);
  enable(leader);
  const auto set = [&](const char* text) {
    return ioctl(leader, PERF_EVENT_IOC_SET_FILTER, reinterpret_cast<uint64_t>(text));
  };
  const auto range = [](pmu::testing::ScriptedUnit& of) {
    return std::pair(of.get(PtRegister::kAddr0A), of.get(static_cast<PtRegister>(0x581)));
  };
  EXPECT_EQ(ioctl(leader, PERF_EVENT_IOC_SET_FILTER, 0), -EFAULT);
  EXPECT_EQ(set("filter 0x1000"), -EINVAL);
  EXPECT_EQ(set("start 0x1000/8@/bin/a"), -EOPNOTSUPP);
  EXPECT_EQ(set("filter 0x10000000000000000/8@/bin/a"), -ERANGE);
  EXPECT_EQ(ioctl(sampling, PERF_EVENT_IOC_SET_FILTER, reinterpret_cast<uint64_t>("filter 1/8@/a")),
            -EINVAL);
  ASSERT_EQ(set("filter 0x1000/0x100@/bin/a"), 0);
  EXPECT_EQ(range(unit()), (std::pair<uint64_t, uint64_t>{0, 0}));  // nothing is mapped
  kernel.map_object(tid, {"/bin/a", 6, 0x400000, 0x10000, 0});
  EXPECT_EQ(range(unit()), (std::pair<uint64_t, uint64_t>{0x401000, 0x4010ff}));
  EXPECT_TRUE(unit().on());
  const Tid child = cloned();
  kernel.run(child, 0);
  auto& childs_unit = unit_of(child).scripted;
  EXPECT_EQ(range(childs_unit), range(unit()));
  ASSERT_EQ(set("filter 0xffffffff81000000/64"), 0);
  EXPECT_EQ(range(childs_unit),
            (std::pair<uint64_t, uint64_t>{0xffffffff81000000, 0xffffffff8100003f}));
  kernel.run(tid, 0);
  EXPECT_EQ(range(unit()), range(childs_unit));
  EXPECT_EQ(unit().faults + childs_unit.faults, 0);
}

}  // namespace
}  // namespace auxtrail::perf_event::testing
