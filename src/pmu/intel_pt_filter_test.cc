// Address filters of the PT PMU: which it takes, and what it writes to the registers.
#include "pmu/testing/pt_test_support.h"

namespace auxtrail::pmu {
namespace {

using namespace testing;  // NOLINT

class PtFilterTest : public ::testing::Test {
 protected:
  PtFilterTest() { group_.leader.task = kTid; }
  int set(std::string_view text) {
    const int error = parse_addr_filters(text.data(), text.size(), group_.leader, filters_);
    return error != 0 ? error : set_addr_filters(group_.leader, filters_);
  }
  void map(std::string_view path, uint64_t start, uint64_t size, uint64_t offset) {
    map_addr_filters(filters_,
                     {path.data(), static_cast<uint32_t>(path.size()), start, size, offset});
  }
  uint64_t address(uint32_t range, uint32_t end) const {
    return group_.unit.get(static_cast<PtRegister>(0x580 + 2 * range + end));
  }
  uint64_t address_writes() const {
    uint64_t count = 0;
    for (const auto& access : group_.unit.log) {
      count += access.is_write && access.which >= PtRegister::kAddr0A;
    }
    return count;
  }
  uint64_t cfg() const { return group_.unit.get(PtRegister::kCtl) >> 32 & 0xffff; }

  PtGroup group_;  // four ranges
  AddrFilters filters_;
};

TEST_F(PtFilterTest, WhatAUnitCanDo) {
  EXPECT_EQ(set("filter 0x1000/0x100@/bin/a"), 0);
  EXPECT_EQ(set("filter 1/2@/a stop 1/2@/a filter 1/2@/a stop 1/2@/a"), 0);
  EXPECT_EQ(set("filter 1/2@/a stop 1/2@/a filter 1/2@/a stop 1/2@/a filter 1/2@/b"), EOPNOTSUPP);
  EXPECT_EQ(set("start 1/2@/a"), EOPNOTSUPP);
  EXPECT_EQ(set("stop 1@/a"), EOPNOTSUPP);  // a single address
  EXPECT_EQ(set("filter 0xffffffff81000000/0x1000"), 0);
  EXPECT_EQ(set("filter 0x401000/0x1000"), EINVAL);  // no kernel address
  EXPECT_EQ(set("filter 0xffffffffffffff00/0x1000"), EINVAL);
  EXPECT_EQ(set("filter 1/99999999999999999999@/a"), ERANGE);
}

TEST(PtFilterCaps, OfUnitsWithFewerRanges) {
  for (uint8_t ranges = 0; ranges <= 7; ++ranges) {
    PtSetup setup;
    setup.caps.num_address_ranges = ranges;
    PtGroup group(setup);
    group.leader.task = kTid;
    std::string text;
    for (uint32_t count = 1; count <= kMaxAddrFilters; ++count) {
      text += "filter 0x10/8@/a ";
      AddrFilters filters;
      ASSERT_EQ(parse_addr_filters(text.data(), text.size(), group.leader, filters), 0);
      const uint32_t have = ranges < 4 ? ranges : 4;
      EXPECT_EQ(set_addr_filters(group.leader, filters), count <= have ? 0 : EOPNOTSUPP);
      group.leader.addr_filters = nullptr;
    }
  }
}

TEST_F(PtFilterTest, RangesReachTheRegistersAtTheNextStart) {
  const std::string text =
      "filter 0x1000/0x100@/bin/a stop 0x20/0x10@/lib/b filter 0xffffffff81000000/64";
  ASSERT_EQ(set(text), 0);
  group_.start();
  // Nothing is mapped yet: ranges that trace nothing.
  EXPECT_EQ(address(0, 0), 0u);
  EXPECT_EQ(address(0, 1), 0u);
  EXPECT_EQ(address(2, 0), 0xffffffff81000000u);
  EXPECT_EQ(address(2, 1), 0xffffffff8100003fu);
  EXPECT_EQ(cfg(), 0x121u);
  map("/bin/a", 0x400000, 0x10000, 0);
  EXPECT_EQ(address(0, 0), 0u);  // running: not now
  group_.stop();
  group_.unit.log.clear();
  group_.start();
  EXPECT_EQ(address(0, 0), 0x401000u);
  EXPECT_EQ(address(0, 1), 0x4010ffu);
  EXPECT_EQ(address_writes(), 2u);  // only what has changed
  map("/lib/b", 0x7f0000000000, 0x1000, 0);
  group_.stop();
  group_.start();
  EXPECT_EQ(address(1, 0), 0x7f0000000020u);
  EXPECT_EQ(address(1, 1), 0x7f000000002fu);
  EXPECT_EQ(group_.unit.faults, 0);
  // And nothing where nothing has changed.
  group_.stop();
  group_.unit.log.clear();
  group_.start();
  EXPECT_EQ(address_writes(), 0u);
  EXPECT_EQ(cfg(), 0x121u);
}

TEST_F(PtFilterTest, FewerFiltersThanBefore) {
  ASSERT_EQ(set("filter 0xffffffff81000000/64 stop 0xffffffff82000000/64"), 0);
  group_.start();
  EXPECT_EQ(cfg(), 0x21u);
  group_.stop();
  ASSERT_EQ(set("stop 0xffffffff81000000/64"), 0);
  group_.start();
  EXPECT_EQ(cfg(), 0x2u);
  group_.stop();
  ASSERT_EQ(set(""), 0);
  group_.start();
  EXPECT_EQ(cfg(), 0u);
}

TEST_F(PtFilterTest, AddressesThatACpuCannotHave) {
  const std::string text = "filter 0/0x1000@/a filter 0x1000/0x1000@/a filter 0x2000/0x1000@/a";
  ASSERT_EQ(set(text), 0);
  map("/a", (uint64_t{1} << 47) - 0x800, 0x1000, 0);  // over the lower half's end
  map("/a", 0xffff7ffffffff800, 0x1000, 0x1000);      // into the upper half
  map("/a", uint64_t{1} << 50, 0x1000, 0x2000);       // between them
  group_.start();
  EXPECT_EQ(address(0, 0), (uint64_t{1} << 47) - 0x800);
  EXPECT_EQ(address(0, 1), (uint64_t{1} << 47) - 1);
  EXPECT_EQ(address(1, 0), 0xffff800000000000u);
  EXPECT_EQ(address(1, 1), 0xffff8000000007ffu);
  EXPECT_EQ(address(2, 0) | address(2, 1), 0u);
}

TEST_F(PtFilterTest, SnapshotsDoNotTouchFilters) {
  ASSERT_EQ(set("filter 0x1000/0x100@/bin/a"), 0);
  Event& sampler = group_.add_sampler(256);
  group_.start();
  group_.unit.trace(300);
  map("/bin/a", 0x400000, 0x10000, 0);
  group_.unit.log.clear();
  group_.overflow(sampler);
  EXPECT_EQ(address_writes(), 0u);
  EXPECT_EQ(cfg(), 1u);
}

}  // namespace
}  // namespace auxtrail::pmu
