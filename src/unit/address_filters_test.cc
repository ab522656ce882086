// Which addresses are traced: filters of files, as their mappings come and go.
#include "unit/address_filters.h"

#include <gmock/gmock.h>

#include <cstring>
#include <string_view>
#include <vector>

namespace auxtrail::unit {
namespace {

using Place = TracedRanges::Place;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

struct Line {
  const char* path;
  uint64_t start;
  uint64_t end;
  uint64_t offset;
};

class AddressFiltersTest : public ::testing::Test {
 protected:
  bool set(std::string_view text) {
    config_.continuous = 1;
    config_.filter_bytes = static_cast<uint32_t>(text.size());
    std::memcpy(config_.filters, text.data(), std::min(text.size(), sizeof config_.filters));
    return filters_.set(config_);
  }
  // The ranges that changed.
  std::vector<std::pair<uint64_t, uint64_t>> map(const std::vector<Line>& lines) {
    filters_.begin_mappings();
    for (const Line& line : lines) {
      filters_.add_mapping(line.path, line.start, line.end, line.offset);
    }
    std::vector<std::pair<uint64_t, uint64_t>> changed;
    filters_.end_mappings(
        [](const AddressRange& range, void* list) {
          static_cast<decltype(changed)*>(list)->emplace_back(range.start, range.end);
        },
        &changed);
    return changed;
  }

  channel::SessionConfig config_;
  AddressFilters filters_;
};

TEST_F(AddressFiltersTest, WithoutFiltersEverythingIsTraced) {
  EXPECT_TRUE(set(""));
  EXPECT_FALSE(filters_.active());
  EXPECT_EQ(filters_.at(0x1234), Place::kTraced);
}

TEST_F(AddressFiltersTest, WhatTheUnitCantDo) {
  EXPECT_FALSE(
      set("filter 0x10/0x10@/a filter 0x10/0x10@/a filter 0x10/0x10@/a filter 0x10/0x10@/a "
          "filter 0x10/0x10@/a"));  // five ranges
  EXPECT_FALSE(set("start 0x10/0x10@/a"));
  EXPECT_FALSE(set("filter 0xffffffff81000000/0x10"));  // the kernel
  EXPECT_FALSE(set("nonsense"));
  EXPECT_FALSE(filters_.active());
  config_.continuous = 0;
  config_.filter_bytes = 5;
  EXPECT_FALSE(filters_.set(config_));  // a window is short enough
}

TEST_F(AddressFiltersTest, WhereTheUnitCountsNothingIsFiltered) {
  for (const auto kind : {channel::Sampler::kBranches, channel::Sampler::kInstructions}) {
    config_.sampler_count = 2;
    config_.samplers[1].kind = kind;
    EXPECT_FALSE(set("filter 0x1000/0x10@/a"));
    EXPECT_FALSE(filters_.active());
  }
  config_.samplers[1].kind = channel::Sampler::kNone;
  EXPECT_TRUE(set("filter 0x1000/0x10@/a"));
  EXPECT_TRUE(filters_.active());
}

TEST_F(AddressFiltersTest, ARangeIsThereOnceItsFileIs) {
  ASSERT_TRUE(set("filter 0x1100/0x80@/lib/b,filter 0x2000/0x10@/bin/a"));
  EXPECT_THAT(map({{"/bin/b", 0x1000, 0x9000, 0}}), IsEmpty());
  EXPECT_EQ(filters_.at(0x2000), Place::kOutside);
  EXPECT_EQ(filters_.at(0), Place::kOutside);
  const std::vector<Line> both = {{"/bin/a", 0x401000, 0x403000, 0x1000},
                                  {"/lib/b", 0x7f0000001000, 0x7f0000002000, 0x1000}};
  EXPECT_THAT(map(both),
              ElementsAre(Pair(0x7f0000001100, 0x7f0000001180), Pair(0x402000, 0x402010)));
  EXPECT_EQ(filters_.at(0x7f00000010ff), Place::kOutside);
  EXPECT_EQ(filters_.at(0x7f0000001100), Place::kTraced);
  EXPECT_EQ(filters_.at(0x7f000000117f), Place::kTraced);
  EXPECT_EQ(filters_.at(0x7f0000001180), Place::kOutside);
  EXPECT_EQ(filters_.at(0x402008), Place::kTraced);
  EXPECT_THAT(map(both), IsEmpty());
  // It is unloaded, and loaded elsewhere.
  EXPECT_THAT(map({both[0]}), ElementsAre(Pair(0x7f0000001100, 0x7f0000001180)));
  EXPECT_EQ(filters_.at(0x7f0000001100), Place::kOutside);
  EXPECT_THAT(map({both[0], {"/lib/b", 0x500000, 0x501000, 0x1000}}),
              ElementsAre(Pair(0x500100, 0x500180)));
}

TEST_F(AddressFiltersTest, OfTwoMappingsTheFirstCountsAndPiecesAreOne) {
  ASSERT_TRUE(set("filter 0x1800/0x1000@/a"));
  EXPECT_THAT(map({{"/a", 0x401000, 0x402000, 0x1000},
                   {"/a", 0x402000, 0x404000, 0x2000},
                   {"/a", 0x501000, 0x504000, 0x1000}}),
              ElementsAre(Pair(0x401800, 0x402800)));
  // A hole between: the second piece is not behind the first.
  EXPECT_THAT(map({{"/a", 0x401000, 0x402000, 0x1000}, {"/a", 0x403000, 0x404000, 0x2000}}),
              ElementsAre(Pair(0x401800, 0x402800), Pair(0x401800, 0x402000)));
}

TEST_F(AddressFiltersTest, TraceStopCountsBeforeAllOthers) {
  ASSERT_TRUE(set("filter 0x1000/0x100@/a,stop 0x1010/0x10@/a"));
  map({{"/a", 0x401000, 0x402000, 0x1000}});
  EXPECT_EQ(filters_.at(0x40100f), Place::kTraced);
  EXPECT_EQ(filters_.at(0x401010), Place::kTraceStop);
  EXPECT_EQ(filters_.at(0x401020), Place::kTraced);
}

TEST_F(AddressFiltersTest, WithTraceStopAloneAllElseIsTraced) {
  ASSERT_TRUE(set("stop 0x1010/0x10@/a"));
  EXPECT_EQ(filters_.at(0), Place::kTraced);
  map({{"/a", 0x401000, 0x402000, 0x1000}});
  EXPECT_EQ(filters_.at(0x40100f), Place::kTraced);
  EXPECT_EQ(filters_.at(0x401010), Place::kTraceStop);
}

TEST_F(AddressFiltersTest, AroundAnAddressAllIsFilteredAsItIs) {
  ASSERT_TRUE(set("filter 0x1000/0x100@/a,filter 0x1080/0x100@/a"));  // they overlap
  map({{"/a", 0x401000, 0x402000, 0x1000}});
  const auto around = [this](uint64_t pc) {
    const AddressRange range = filters_.ranges().around(pc);
    return std::pair(range.start, range.end);
  };
  EXPECT_EQ(around(0x400fff), std::pair(uint64_t{0}, uint64_t{0x401000}));
  EXPECT_EQ(around(0x401000), std::pair(uint64_t{0x401000}, uint64_t{0x401080}));
  EXPECT_EQ(around(0x401080), std::pair(uint64_t{0x401080}, uint64_t{0x401100}));
  EXPECT_EQ(around(0x401100), std::pair(uint64_t{0x401100}, uint64_t{0x401180}));
  EXPECT_EQ(around(0x401180), std::pair(uint64_t{0x401180}, ~uint64_t{0}));
}

}  // namespace
}  // namespace auxtrail::unit
