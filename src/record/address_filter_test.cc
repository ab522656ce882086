#include "record/address_filter.h"

#include <gmock/gmock.h>

namespace auxtrail::record {
namespace {

using ::testing::HasSubstr;

// A file with main at 0x1000 (0x40 bytes), two "helper" at 0x2000 and 0x3000 and its end at 0x4000.
Result<FileRange> find(const std::string& file, const FilterPlace& place) {
  if (file != "/bin/x") return fail({"open", file, "no such file", ""});
  if (place.symbol == "*") return FileRange{0x1000, 0x3000};
  if (place.symbol == "main") return FileRange{0x1000, 0x40};
  if (place.symbol == "helper" && place.index == 1) return FileRange{0x2000, 0x10};
  if (place.symbol == "helper" && place.index == 2) return FileRange{0x3000, 0x20};
  return fail({"find", place.symbol, "no such symbol", ""});
}

std::string resolved(std::string_view text) {
  const auto filters = read_address_filters(text);
  if (!filters) return filters.error().message();
  std::string result;
  for (const FilterText& filter : *filters) {
    const auto region = resolve_filter(filter, find);
    result +=
        (result.empty() ? "" : ", ") + (region ? filter_text(*region) : region.error().message());
  }
  return result;
}

TEST(AddressFilter, NumbersAndSymbols) {
  EXPECT_EQ(resolved("filter 0x1000/0x80@/bin/x"), "filter 0x1000/0x80@/bin/x");
  EXPECT_EQ(resolved("filter 4096 / 128 @ /bin/x"), "filter 0x1000/0x80@/bin/x");
  EXPECT_EQ(resolved("filter main @ /bin/x"), "filter 0x1000/0x40@/bin/x");
  EXPECT_EQ(resolved("filter main / 8 @ /bin/x"), "filter 0x1000/0x8@/bin/x");
  EXPECT_EQ(resolved("filter main / helper #2 @/bin/x"), "filter 0x1000/0x2020@/bin/x");
  EXPECT_EQ(resolved("filter * @/bin/x"), "filter 0x1000/0x3000@/bin/x");
  EXPECT_EQ(resolved("tracestop helper #1 @/bin/x"), "stop 0x2000/0x10@/bin/x");
}

TEST(AddressFilter, SeveralAreSeparatedByCommasOrBlanks) {
  EXPECT_EQ(resolved("filter 1/2@/bin/x,tracestop main @/bin/x filter 3/4@/bin/x"),
            "filter 0x1/0x2@/bin/x, stop 0x1000/0x40@/bin/x, filter 0x3/0x4@/bin/x");
}

TEST(AddressFilter, WhatCannotBe) {
  EXPECT_THAT(resolved("filter main"), HasSubstr("kernel"));
  EXPECT_THAT(resolved("filter 0x1000 @/bin/x"), HasSubstr("needs a size"));
  EXPECT_THAT(resolved("filter 0x1000/0 @/bin/x"), HasSubstr("holds nothing"));
  EXPECT_THAT(resolved("filter helper #2 / main @/bin/x"), HasSubstr("holds nothing"));
  EXPECT_THAT(resolved("start main @/bin/x"), HasSubstr("single address"));
  EXPECT_THAT(resolved("stop 0x10 @/bin/x"), HasSubstr("single address"));
  EXPECT_THAT(resolved("trace main @/bin/x"), HasSubstr("no action"));
  EXPECT_THAT(resolved("filter nobody @/bin/x"), HasSubstr("no such symbol"));
  EXPECT_THAT(resolved("filter main @/bin/y"), HasSubstr("no such file"));
  EXPECT_THAT(resolved("filter main #x @/bin/x"), HasSubstr("no number"));
  for (const char* bad : {"", " ", ",", "filter", "filter @/bin/x", "filter / 3 @/bin/x",
                          "filter 0x1/ @/bin/x", "filter 99999999999999999999/1@/bin/x"}) {
    EXPECT_FALSE(read_address_filters(bad)) << bad;
  }
}

}  // namespace
}  // namespace auxtrail::record
