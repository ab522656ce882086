// Output tables bit by bit, positions there and back, marks.
#include "pmu/pt_buffer.h"

#include <random>

#include "pmu/testing/pt_test_support.h"

namespace auxtrail::pmu {
namespace {

using namespace testing;  // NOLINT

constexpr uint64_t kPage = topa::kPageBytes;

TEST(TopaTest, EntriesAreTheSdms) {
  EXPECT_EQ(topa::region_entry(0x12345678000, 12), 0x12345678000u);
  EXPECT_EQ(topa::region_entry(0x12340000000, 27), 0x12340000000u | 15u << 6);
  EXPECT_EQ(topa::end_entry(0x7000), 0x7001u);
  EXPECT_EQ(topa::size_of(topa::region_entry(0x400000, 22)), uint64_t{4} << 20);
  EXPECT_EQ(topa::base_of(topa::region_entry(0x400000, 22) | topa::kStop | topa::kInt), 0x400000u);
}

class TopaChain : public ::testing::Test {
 protected:
  // 1100 regions: two full tables of 511 and a short third.
  static constexpr uint64_t kRegions = 1100;
  Pages memory_{16 * kPage};
  TopaTables tables_;
  uint64_t* words_ = memory_.tables().words;
};

TEST_F(TopaChain, TablesNameTheNextAndTheLastTheFirst) {
  ASSERT_EQ(TopaTables::bytes_needed(kRegions * kPage, 12, true), 3 * kPage);
  ASSERT_EQ(tables_.build({words_, 3 * kPage}, 0x100000, kRegions * kPage, 12, true), 0);
  const auto at = reinterpret_cast<uint64_t>(words_);
  EXPECT_EQ(words_[0], 0x100000u);
  EXPECT_EQ(words_[510], 0x100000u + 510 * kPage);
  EXPECT_EQ(words_[511], (at + kPage) | topa::kEnd);
  EXPECT_EQ(words_[512], 0x100000u + 511 * kPage);
  EXPECT_EQ(words_[1023], (at + 2 * kPage) | topa::kEnd);
  const uint64_t last = kRegions - 2 * 511 - 1;
  EXPECT_EQ(words_[1024 + last], 0x100000u + (kRegions - 1) * kPage);
  EXPECT_EQ(words_[1024 + last + 1], at | topa::kEnd);
}

TEST_F(TopaChain, OneRegionTablesNameThemselves) {
  ASSERT_EQ(TopaTables::bytes_needed(4 * kPage, 12, false), 4 * kPage);
  ASSERT_EQ(tables_.build({words_, 4 * kPage}, 0x100000, 4 * kPage, 12, false), 0);
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(words_[512 * i], 0x100000u + i * kPage);
    EXPECT_EQ(words_[512 * i + 1], (reinterpret_cast<uint64_t>(words_) + i * kPage) | topa::kEnd);
  }
}

TEST_F(TopaChain, WhatCannotBe) {
  const TopaMemory enough{words_, 16 * kPage};
  EXPECT_EQ(tables_.build(enough, 0x100000, 8 * kPage, 11, true), EINVAL);
  EXPECT_EQ(tables_.build(enough, 0, uint64_t{1} << 28, 28, true), EINVAL);
  EXPECT_EQ(tables_.build(enough, 0x100800, 8 * kPage, 12, true), EINVAL);
  EXPECT_EQ(tables_.build(enough, 0x101000, 8 * kPage, 13, true), EINVAL);
  EXPECT_EQ(tables_.build(enough, 0x100000, 0, 12, true), EINVAL);
  EXPECT_EQ(tables_.build({nullptr, 16 * kPage}, 0x100000, 8 * kPage, 12, true), EINVAL);
  EXPECT_EQ(tables_.build({words_ + 1, 8 * kPage}, 0x100000, 8 * kPage, 12, true), EINVAL);
  EXPECT_EQ(tables_.build({words_, 2 * kPage}, 0x100000, kRegions * kPage, 12, true), ENOMEM);
  EXPECT_EQ(tables_.build({words_, kPage - 8}, 0x100000, 8 * kPage, 12, true), ENOMEM);
}

class PtBufferTest : public ::testing::Test {
 protected:
  int setup(uint64_t bytes, abi::PtCaps caps, bool snapshot, uint32_t shift = 22) {
    if (area_.attach(nullptr, pages_.bytes(), bytes) != 0) return -1;
    return buffer_.setup(area_, caps, {snapshot, shift, tables_.tables()});
  }
  static abi::PtCaps without_multiple_entries() {
    abi::PtCaps caps = kAllCaps;
    caps.topa_multiple_entries = false;
    return caps;
  }
  // Marks as "offset of the region" lists.
  std::string marks() {
    std::string text;
    TopaTables& tables = buffer_.tables();
    for (uint64_t region = 0; region < tables.region_count(); ++region) {
      const uint64_t entry = tables.entry(region);
      text += (entry & topa::kStop) != 0 ? 'S' : (entry & topa::kInt) != 0 ? 'I' : '.';
    }
    return text;
  }

  Pages pages_{uint64_t{1} << 31};
  Pages tables_{1 << 20};
  AuxArea area_;
  PtBuffer buffer_;
};

// Errata TGL052, ADL037, RPL017: a single range larger than a page may hold wrong data.
TEST_F(PtBufferTest, K5_SingleRangesForOnePageInOverwriteModeOnly) {
  ASSERT_EQ(setup(kPage, kAllCaps, true), 0);
  EXPECT_TRUE(buffer_.single());
  ASSERT_EQ(setup(2 * kPage, kAllCaps, true), 0);
  EXPECT_FALSE(buffer_.single());
  ASSERT_EQ(setup(kPage, kAllCaps, false), 0);
  EXPECT_FALSE(buffer_.single());
  abi::PtCaps without = kAllCaps;
  without.single_range_output = false;
  ASSERT_EQ(setup(kPage, without, true), 0);
  EXPECT_FALSE(buffer_.single());
}

TEST_F(PtBufferTest, UnitsThatCannotWriteThere) {
  abi::PtCaps none = kAllCaps;
  none.topa_output = false;
  EXPECT_EQ(setup(2 * kPage, none, true), EINVAL);
  EXPECT_EQ(setup(kPage, none, true), 0);  // a single range it can
  EXPECT_EQ(setup(2048, kAllCaps, true), EINVAL);
  // In overwrite mode with one region per table that region must be the area: not over 128 MiB,
  // and aligned.
  EXPECT_EQ(setup(uint64_t{1} << 28, without_multiple_entries(), true), EINVAL);
  ASSERT_EQ(area_.attach(nullptr, pages_.bytes() + kPage, 2 * kPage), 0);
  EXPECT_EQ(buffer_.setup(area_, without_multiple_entries(), {true, 22, tables_.tables()}), EINVAL);
  EXPECT_EQ(buffer_.setup(area_, kAllCaps, {true, 22, tables_.tables()}), 0);
}

TEST_F(PtBufferTest, RegionsAreAsLargeAsAllowed) {
  ASSERT_EQ(setup(uint64_t{1} << 24, kAllCaps, true), 0);
  EXPECT_LE(buffer_.region_bytes(), uint64_t{1} << 22);
  EXPECT_EQ(buffer_.tables().region_count() * buffer_.region_bytes(), uint64_t{1} << 24);
  ASSERT_EQ(setup(uint64_t{1} << 24, kAllCaps, true, 12), 0);
  EXPECT_EQ(buffer_.region_bytes(), kPage);
}

// Any position survives the way through the registers, in all modes.
TEST_F(PtBufferTest, PositionsThereAndBack) {
  std::mt19937_64 random(7);
  for (const uint64_t bytes : {kPage, 2 * kPage, 1024 * kPage, uint64_t{1} << 31}) {
    for (const bool multiple : {true, false}) {
      if (!multiple && bytes > 256 * kPage) continue;
      for (const bool snapshot : {true, false}) {
        const uint32_t shift = bytes >= uint64_t{1} << 31 ? 20 : 12;
        abi::PtCaps caps = kAllCaps;
        caps.topa_multiple_entries = multiple;
        if (setup(bytes, caps, snapshot, shift) != 0) continue;  // alignment, see above
        ScriptedUnit scripted(caps);
        for (int i = 0; i < 200; ++i) {
          const uint64_t head = random();
          buffer_.program(scripted.unit(), buffer_.position_at(head));
          PtPosition back;
          ASSERT_TRUE(buffer_.read(scripted.unit(), back));
          ASSERT_EQ(buffer_.offset_of(back), head & (bytes - 1));
        }
        scripted.set(PtRegister::kOutputBase, scripted.get(PtRegister::kOutputBase) + 8);
        PtPosition nowhere;
        EXPECT_FALSE(buffer_.read(scripted.unit(), nowhere));
      }
    }
  }
}

TEST_F(PtBufferTest, MarksBoundWhatIsFree) {
  ASSERT_EQ(setup(8 * kPage, kAllCaps, false, 12), 0);
  EXPECT_EQ(marks(), "........");
  struct Case {
    uint64_t head, free, wakeup;  // in quarters of a page
    int error;
    const char* marks;
  };
  const Case cases[] = {
      {0, 32, 16, 0, "...I...S"},    // empty area, watermark in the middle
      {0, 32, 31, 0, "......IS"},    // a watermark near the end: one region before the stop
      {8, 32, 24, 0, ".S...I.."},    // from the third region round to the second
      {10, 32, 26, 0, ".S....I."},   // from inside the third: its begin stays unread
      {10, 3, 40, 0, "..S....."},    // room to the end of this region and a bit
      {10, 2, 40, 0, "..S....."},    // exactly to its end
      {10, 1, 40, EINVAL, nullptr},  // the reader is inside this region
      {0, 3, 40, EINVAL, nullptr},   // less than a region
      {30, 12, 33, 0, "IS......"},   // round the end of the area
      {320000010, 32, 320000026, 0, ".S....I."},  // far from the start
  };
  for (const Case& c : cases) {
    const uint64_t quarter = kPage / 4;
    ASSERT_EQ(buffer_.set_marks(c.head * quarter, c.free * quarter, c.wakeup * quarter), c.error)
        << c.head << ' ' << c.free;
    if (c.error == 0) {
      EXPECT_EQ(marks(), c.marks) << c.head << ' ' << c.free << ' ' << c.wakeup;
    }
  }
}

// Whatever the head and the room: the unit stops inside of it, and uses all whole regions of it.
TEST_F(PtBufferTest, AUnitNeverWritesOverWhatIsNotFree) {
  ASSERT_EQ(setup(8 * kPage, kAllCaps, false, 12), 0);
  std::mt19937_64 random(8);
  for (int i = 0; i < 3000; ++i) {
    const uint64_t head = random() >> (random() % 60);
    const uint64_t free = 1 + random() % (8 * kPage);
    ScriptedUnit scripted(kAllCaps);
    if (buffer_.set_marks(head, free, head + random() % (9 * kPage)) != 0) {
      EXPECT_LT(free, kPage - head % kPage);
      continue;
    }
    const TraceUnit unit = scripted.unit();
    buffer_.program(unit, buffer_.position_at(head));
    unit.write(unit.self, PtRegister::kCtl, rtit_ctl::kTraceEn | rtit_ctl::kToPA);
    int interrupts = 0;
    scripted.interrupt = [&] { ++interrupts; };
    for (int page = 0; page < 20; ++page) scripted.skip(kPage);
    ASSERT_FALSE(scripted.on());
    ASSERT_LE(scripted.total, free);
    ASSERT_GT(scripted.total + kPage, free) << "a whole region was left";
    ASSERT_GE(interrupts, 1);
  }
}

TEST_F(PtBufferTest, OneRegionTablesStopAtEveryRegion) {
  ASSERT_EQ(setup(4 * kPage, without_multiple_entries(), false, 12), 0);
  EXPECT_EQ(marks(), "SSSS");
  EXPECT_EQ(buffer_.set_marks(0, 4 * kPage, 0), 0);
  EXPECT_EQ(marks(), "SSSS");
  EXPECT_EQ(buffer_.set_marks(100, 1000, 0), EINVAL);
  ASSERT_EQ(setup(kPage, without_multiple_entries(), false, 12), 0);
  EXPECT_EQ(marks(), "S");
}

}  // namespace
}  // namespace auxtrail::pmu
