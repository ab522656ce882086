#include "record/size_text.h"

#include <gtest/gtest.h>

namespace auxtrail::record {
namespace {

TEST(SizeText, UnitsAreBinary) {
  EXPECT_EQ(parse_size("4096", "-x").value(), 4096U);
  EXPECT_EQ(parse_size("4K", "-x").value(), 4096U);
  EXPECT_EQ(parse_size("4k", "-x").value(), 4096U);
  EXPECT_EQ(parse_size("2M", "-x").value(), 2U << 20);
  EXPECT_EQ(parse_size("1G", "-x").value(), 1U << 30);
  EXPECT_EQ(parse_size("8B", "-x").value(), 8U);
}

TEST(SizeText, RejectsWhatIsNoNumber) {
  for (const char* text :
       {"", "x", "-1", "4KB", "4 K", "0x10", "99999999999999999999", "18446744073709551615K"}) {
    const auto result = parse_size(text, "--aux-sample");
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().where, "--aux-sample");
    EXPECT_FALSE(result.error().fix.empty());
  }
}

// As perf: "-m 3" is rounded up to 4 pages, "-m 5K" to 2.
TEST(SizeText, PagesAreRoundedUpToPowersOfTwo) {
  EXPECT_EQ(parse_pages("1", "-m").value(), 1U);
  EXPECT_EQ(parse_pages("3", "-m").value(), 4U);
  EXPECT_EQ(parse_pages("128", "-m").value(), 128U);
  EXPECT_EQ(parse_pages("5K", "-m").value(), 2U);
  EXPECT_EQ(parse_pages("512K", "-m").value(), 128U);
  EXPECT_EQ(parse_pages("64M", "-m").value(), kMaxPages);
}

TEST(SizeText, PagesHaveLimits) {
  EXPECT_FALSE(parse_pages("0", "-m"));
  EXPECT_FALSE(parse_pages("0K", "-m"));
  EXPECT_FALSE(parse_pages("16385", "-m"));
  EXPECT_FALSE(parse_pages("1G", "-m"));
}

}  // namespace
}  // namespace auxtrail::record
