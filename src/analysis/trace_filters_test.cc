#include "analysis/trace_filters.h"

#include <gtest/gtest.h>

#include <array>

#include "analysis/testing/traced_file.h"
#include "analysis/testing/verified.h"
#include "analysis/verification.h"
#include "image/dso.h"
#include "pt/packet_writer.h"

namespace auxtrail::analysis {
namespace {

class TraceFiltersTest : public ::testing::Test {
 protected:
  // File offsets 0x1000 to 0x3000 of /bin/x at 0x401000, all of /lib/y at 0x7f0000000000.
  TraceFiltersTest() {
    layout_.mappings = {{0x401000, 0x403000, 0x1000, dsos_.intern("/bin/x")},
                        {0x7f0000000000, 0x7f0000010000, 0, dsos_.intern("/lib/y")}};
  }
  image::DsoTable dsos_;
  image::Layout layout_;
};

TEST_F(TraceFiltersTest, WithoutAnyNothingIsExcluded) {
  for (const char* text : {"", "nonsense", "filter 1/2@"}) {
    const TraceFilters none(text);
    EXPECT_TRUE(none.empty()) << text;
    EXPECT_FALSE(none.exclude(layout_, 0x401000)) << text;
  }
}

TEST_F(TraceFiltersTest, OutsideAllRegions) {
  const TraceFilters filters("filter 0x1100/0x80@/bin/x,filter 0x20/8@/lib/y");
  EXPECT_TRUE(filters.exclude(layout_, 0x4010ff));
  EXPECT_FALSE(filters.exclude(layout_, 0x401100));
  EXPECT_FALSE(filters.exclude(layout_, 0x40117f));
  EXPECT_TRUE(filters.exclude(layout_, 0x401180));
  EXPECT_FALSE(filters.exclude(layout_, 0x7f0000000020));
  EXPECT_TRUE(filters.exclude(layout_, 0x7f0000001100));
  EXPECT_TRUE(filters.exclude(layout_, 0x10));  // nothing is mapped there
}

TEST_F(TraceFiltersTest, RegionsThatStopTheTrace) {
  const TraceFilters alone("stop 0x1100/0x80@/bin/x");
  EXPECT_FALSE(alone.exclude(layout_, 0x4010ff));
  EXPECT_TRUE(alone.exclude(layout_, 0x401100));
  const TraceFilters within("filter 0x1000/0x1000@/bin/x,stop 0x1100/0x80@/bin/x");
  EXPECT_FALSE(within.exclude(layout_, 0x401000));
  EXPECT_TRUE(within.exclude(layout_, 0x401100));
}

TEST_F(TraceFiltersTest, AStoppedTraceIsSeenInItsPackets) {
  std::array<std::byte, 256> bytes{};
  pt::PacketWriter writer(reinterpret_cast<uint8_t*>(bytes.data()));
  writer.begin(0x401000, 1);
  const size_t begun = writer.size_bytes();
  writer.tip_pgd(0x401100);
  writer.trace_stop();
  const size_t stopped = writer.size_bytes();
  writer.tip_pge(0x401000);
  const TraceFilters filters("stop 0x1100/0x80@/bin/x");
  const std::span<const std::byte> all(bytes);
  EXPECT_FALSE(filters.stopped(all.first(begun)));
  EXPECT_TRUE(filters.stopped(all.first(stopped)));
  EXPECT_FALSE(filters.stopped(all.first(writer.size_bytes())));
  EXPECT_FALSE(TraceFilters("filter 0x1100/0x80@/bin/x").stopped(all.first(stopped)));
}

// Samples that lie one byte behind their histories' ends, in a recording with that filter.
Verification verify_with(const std::string& filter) {
  auto samples = testing::traced_samples(3);
  for (auto& sample : samples) ++sample.ip;
  return testing::verified(testing::traced_file(samples, true, "", filter));
}

TEST(FilteredVerification, OnlyOutsideTheFiltersMayHistoriesEndBefore) {
  const Verification outside = verify_with("filter 0x1100/0x80@/nowhere");
  EXPECT_TRUE(outside.ok());
  EXPECT_EQ(outside.ends_before_filtered_ip, 3U);
  EXPECT_EQ(outside.ends_elsewhere, 0U);
  const Verification inside = verify_with("filter 0/0x7fffffff@" + testing::traced_path());
  EXPECT_FALSE(inside.ok());
  EXPECT_EQ(inside.ends_elsewhere, 3U);
  EXPECT_EQ(inside.ends_before_filtered_ip, 0U);
  EXPECT_FALSE(verify_with("").ok());
}

}  // namespace
}  // namespace auxtrail::analysis
