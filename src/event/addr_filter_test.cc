// Address filter strings as the kernel's ioctl reads them, and the ranges that mappings give them.
#include "event/addr_filter.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "event/event.h"
#include "event/test_support.h"

namespace auxtrail::event {
namespace {

class AddrFilterTest : public ::testing::Test {
 protected:
  AddrFilterTest() { event_.task = testing::kTid; }
  int parse(std::string_view text) {
    return parse_addr_filters(text.data(), text.size(), event_, filters_);
  }
  static AddrMapping mapping(std::string_view path, uint64_t start, uint64_t size,
                             uint64_t offset) {
    return {path.data(), static_cast<uint32_t>(path.size()), start, size, offset};
  }
  Event event_;
  AddrFilters filters_;
};

TEST_F(AddrFilterTest, ReadsActionsRangesAndObjects) {
  const std::string text =
      "filter 0x1000/0x200@/usr/bin/true, tracestop 64/010@/a/b\n stop 0xffffffff81000000/16 "
      "start 7@/c";
  ASSERT_EQ(parse(text), 0);
  ASSERT_EQ(filters_.count, 4u);
  const AddrFilter* f = filters_.filters;
  EXPECT_EQ(f[0].action, AddrFilterAction::kFilter);
  EXPECT_EQ(f[0].offset, 0x1000u);
  EXPECT_EQ(f[0].size_bytes, 0x200u);
  EXPECT_EQ(std::string_view(f[0].path, f[0].path_bytes), "/usr/bin/true");
  EXPECT_EQ(f[1].action, AddrFilterAction::kStop);
  EXPECT_EQ(f[1].offset, 64u);
  EXPECT_EQ(f[1].size_bytes, 8u);
  EXPECT_EQ(f[2].action, AddrFilterAction::kStop);
  EXPECT_EQ(f[2].path, nullptr);
  EXPECT_EQ(f[3].action, AddrFilterAction::kStart);
  EXPECT_EQ(f[3].size_bytes, 0u);
  // Addresses are where they are; objects are nowhere yet.
  EXPECT_EQ(filters_.ranges[2].start, 0xffffffff81000000u);
  EXPECT_EQ(filters_.ranges[0].size_bytes + filters_.ranges[1].size_bytes, 0u);
  EXPECT_EQ(parse(""), 0);
  EXPECT_EQ(filters_.count, 0u);
}

TEST_F(AddrFilterTest, BadStrings) {
  for (const char* bad :
       {"filter", "filter 12", "filter 12/0@/a", "filter 12@/a", "12/3", "trace 1/2", "filter x/2",
        "filter 1/x", "filter 1/2@", "filter 1/2x", "filter 08/2", "filter 1/2 3/4", "filter 0x/1",
        "filter -1/2", "stop", "filter filter 1/2"}) {
    EXPECT_EQ(parse(bad), EINVAL) << bad;
  }
  EXPECT_EQ(parse("filter 18446744073709551615/1"), 0);
  EXPECT_EQ(parse("filter 18446744073709551616/1"), ERANGE);
  EXPECT_EQ(parse("filter 1/0x10000000000000000@/a"), ERANGE);
  EXPECT_EQ(parse("filter 0x1ffffffffffffffffffff/1"), ERANGE);
}

TEST_F(AddrFilterTest, ObjectsNeedATaskAndAddressesTheKernel) {
  event_.task = 0;
  EXPECT_EQ(parse("filter 1/2@/a"), EOPNOTSUPP);
  EXPECT_EQ(parse("filter 0xffffffff81000000/2"), 0);
  event_.attr.exclude_kernel = 1;
  EXPECT_EQ(parse("filter 0xffffffff81000000/2"), EINVAL);
}

TEST_F(AddrFilterTest, MoreThanAnyUnitHas) {
  std::string text;
  for (uint32_t i = 0; i < kMaxAddrFilters; ++i) text += "filter 1/2@/a ";
  EXPECT_EQ(parse(text), 0);
  EXPECT_EQ(parse(text + "filter 1/2@/a"), EOPNOTSUPP);
}

TEST_F(AddrFilterTest, MappingsGiveRanges) {
  const std::string text =
      "filter 0x1800/0x1000@/lib/a filter 0x100/0x10@/lib/a filter 0x1800/0x1000@/lib/ab "
      "stop 0x2fff@/lib/a";
  ASSERT_EQ(parse(text), 0);
  const uint64_t before = filters_.generation;
  // File bytes 0x2000..0x2fff at 0x7000: only the second half of the first filter.
  EXPECT_EQ(map_addr_filters(filters_, mapping("/lib/a", 0x7000, 0x1000, 0x2000)), 2u);
  EXPECT_EQ(filters_.ranges[0].start, 0x7000u);
  EXPECT_EQ(filters_.ranges[0].size_bytes, 0x800u);
  EXPECT_EQ(filters_.ranges[1].size_bytes, 0u);
  EXPECT_EQ(filters_.ranges[2].size_bytes, 0u);  // another object
  EXPECT_EQ(filters_.ranges[3].start, 0x7fffu);
  EXPECT_EQ(filters_.generation, before + 1);
  // The whole of it.
  EXPECT_EQ(map_addr_filters(filters_, mapping("/lib/a", 0x40000, 0x10000, 0)), 3u);
  EXPECT_EQ(filters_.ranges[0].start, 0x41800u);
  EXPECT_EQ(filters_.ranges[0].size_bytes, 0x1000u);
  EXPECT_EQ(map_addr_filters(filters_, mapping("/lib/c", 0x40000, 0x10000, 0)), 0u);
  EXPECT_EQ(filters_.generation, before + 2);
}

int refuse(const Event&, const AddrFilters& filters) { return filters.count > 1 ? EOPNOTSUPP : 0; }
int synced = 0;
void sync(Event&) { ++synced; }
constexpr Pmu kFiltering{.addr_filters_validate = refuse, .addr_filters_sync = sync};

TEST_F(AddrFilterTest, ThePmuHasTheLastWordAndLearnsOfChangesOnce) {
  const std::string text = "filter 0x10/8@/a";
  ASSERT_EQ(parse(text), 0);
  EXPECT_EQ(set_addr_filters(event_, filters_), EINVAL);  // no PMU at all
  event_.pmu = &kSoftwareTrigger;
  EXPECT_EQ(set_addr_filters(event_, filters_), EINVAL);  // one without filters
  event_.pmu = &kFiltering;
  filters_.count = 2;
  EXPECT_EQ(set_addr_filters(event_, filters_), EOPNOTSUPP);
  EXPECT_EQ(event_.addr_filters, nullptr);
  filters_.count = 1;
  EXPECT_EQ(set_addr_filters(event_, filters_), 0);
  synced = 0;
  sync_addr_filters(event_);
  sync_addr_filters(event_);
  EXPECT_EQ(synced, 1);
  map_addr_filters(filters_, mapping("/a", 0x5000, 0x1000, 0));
  sync_addr_filters(event_);
  sync_addr_filters(event_);
  EXPECT_EQ(synced, 2);
}

}  // namespace
}  // namespace auxtrail::event
