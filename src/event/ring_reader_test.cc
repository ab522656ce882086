// The reader against rings that lie: checklist D8, D9 and issue point "a program that scribbles
// over the rings".
#include "event/ring_reader.h"

#include <gtest/gtest.h>

#include <random>

#include "event/test_support.h"

namespace auxtrail::event {
namespace {

using namespace testing;

class RingReaderTest : public ::testing::Test {
 protected:
  RingReaderTest() { EXPECT_EQ(ring_.attach(memory_.control(), memory_.data(), 4096), 0); }
  bool try_write(uint16_t size, uint16_t mark) {
    OutputHandle handle;
    uint64_t lost = 0;
    if (!ring_.begin(handle, size, 0, lost)) return false;
    handle.put(perf_event_header{PERF_RECORD_SAMPLE, mark, size});
    ring_.end(handle);
    return true;
  }
  void write(uint16_t size, uint16_t mark) { ASSERT_TRUE(try_write(size, mark)); }
  void overwrite_size(uint64_t position, uint16_t size) {
    std::memcpy(memory_.data() + (position & 4095) + 6, &size, 2);
  }
  std::vector<uint16_t> marks() {
    std::vector<uint16_t> result;
    for (const auto& record : drain(reader_)) result.push_back(header_of(record).misc);
    return result;
  }
  using Marks = std::vector<uint16_t>;

  Memory memory_{4096, 4096};
  DataRing ring_;
  RingReader reader_ = memory_.reader();
  RecordScratch scratch_;
};

TEST_F(RingReaderTest, D8_ReleaseMovesTheTailOverWhatWasRead) {
  write(64, 1);
  write(32, 2);
  ASSERT_TRUE(reader_.begin());
  EXPECT_EQ(reader_.next(scratch_).size(), 64u);
  EXPECT_EQ(memory_.control()->data_tail, 0u);
  reader_.release();
  EXPECT_EQ(memory_.control()->data_tail, 64u);
  EXPECT_EQ(marks(), Marks{2});
  EXPECT_EQ(memory_.control()->data_tail, 96u);
  EXPECT_FALSE(reader_.begin());
}

TEST_F(RingReaderTest, RecordsBelowOneHeadOnly) {
  write(64, 1);
  ASSERT_TRUE(reader_.begin());
  write(64, 2);
  EXPECT_FALSE(reader_.next(scratch_).empty());
  EXPECT_TRUE(reader_.next(scratch_).empty());
  EXPECT_EQ(marks(), Marks{2});
}

class BadSize : public RingReaderTest, public ::testing::WithParamInterface<uint16_t> {};

TEST_P(BadSize, IsDroppedUpToTheHeadAndReadingGoesOn) {
  write(64, 1);
  write(64, 2);
  write(64, 3);
  overwrite_size(64, GetParam());
  EXPECT_EQ(marks(), Marks{1});
  EXPECT_EQ(reader_.counters().corrupt_headers, 1u);
  EXPECT_EQ(reader_.counters().dropped_bytes, 128u);
  write(64, 4);
  EXPECT_EQ(marks(), Marks{4});
  EXPECT_EQ(reader_.counters().corrupt_headers, 1u);
}

INSTANTIATE_TEST_SUITE_P(Sizes, BadSize,
                         ::testing::Values(0, 1, 7, 9, 68, 136, 4096, 65528, 65535));

TEST_F(RingReaderTest, AHeaderChangedAfterItWasCheckedDoesNotMatter) {
  write(64, 1);
  ASSERT_TRUE(reader_.begin());
  const auto record = reader_.next(scratch_);
  overwrite_size(0, 65528);
  EXPECT_EQ(header_of(to_bytes(record)).size, 64);
  EXPECT_EQ(record.size(), 64u);
}

TEST_F(RingReaderTest, BadHeadsAreCountedAndLeftBehind) {
  write(64, 1);
  EXPECT_EQ(marks(), Marks{1});
  for (const uint64_t moved : {~uint64_t{7}, uint64_t{4104}, uint64_t{1} << 63, uint64_t{7}}) {
    const uint64_t head = reader_.tail() + moved;
    memory_.control()->data_head = head;
    const uint64_t before = reader_.counters().bad_heads;
    EXPECT_EQ(marks(), Marks{}) << head;
    EXPECT_EQ(reader_.counters().bad_heads, before + 1) << head;
    // The next attempt publishes the true head, even if it finds no room before a tail that is off;
    // from where the reader is now that head looks bad once more, and then both are at the same
    // place again.
    try_write(64, 2);
    marks();
    write(64, 3);
    EXPECT_EQ(marks(), Marks{3}) << head;
  }
}

TEST_F(RingReaderTest, ReleaseMendsAnOverwrittenTail) {
  memory_.control()->data_tail = 0x1234567;
  EXPECT_EQ(marks(), Marks{});
  EXPECT_EQ(memory_.control()->data_tail, 0u);
}

// Whatever is in the shared memory: no read outside, no endless pass, and afterwards all is well
// again.
TEST_F(RingReaderTest, SurvivesScribblingEverywhere) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 3000; ++round) {
    for (uint64_t n = random() % 6; n > 0; --n) {
      OutputHandle handle;
      uint64_t lost = 0;
      const auto size = static_cast<uint16_t>(8 * (1 + random() % 64));
      if (!ring_.begin(handle, size, 0, lost)) break;
      handle.put(perf_event_header{PERF_RECORD_SAMPLE, 0, size});
      ring_.end(handle);
    }
    for (uint64_t n = random() % 30; n > 0; --n) {
      memory_.data()[random() % 4096] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) memory_.control()->data_head = random();
    if (random() % 4 == 0) memory_.control()->data_head += 8 * (random() % 600);
    if (random() % 4 == 0) memory_.control()->data_tail = random();
    uint64_t bytes = 0;
    reader_.begin();
    EXPECT_LE(reader_.pending_bytes(), 4096u);
    while (true) {
      const auto record = reader_.next(scratch_);
      if (record.empty()) break;
      ASSERT_GE(record.size(), 8u);
      ASSERT_EQ(record.size() % 8, 0u);
      ASSERT_EQ(header_of(to_bytes(record)).size, record.size());
      bytes += record.size();
      if (random() % 8 == 0) memory_.data()[random() % 4096] = static_cast<std::byte>(random());
    }
    ASSERT_LE(bytes, 4096u);
    EXPECT_EQ(reader_.pending_bytes(), 0u);
    reader_.release();
  }
  EXPECT_GT(reader_.counters().records, 100u);
  EXPECT_GT(reader_.counters().corrupt_headers, 100u);
  EXPECT_GT(reader_.counters().bad_heads, 100u);
  write(64, 1);
  marks();
  write(64, 77);
  EXPECT_EQ(marks(), Marks{77});
  EXPECT_TRUE(memory_.guards_intact());
}

}  // namespace
}  // namespace auxtrail::event
