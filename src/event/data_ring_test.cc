// The data ring's rules: checklist D1, D2, D3, D9 and the untrusted reader, then a property test
// against a model.
#include "event/data_ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <random>

#include "event/test_support.h"

namespace auxtrail::event {
namespace {

using namespace testing;

constexpr uint64_t kLostBytes = 24;

class DataRingTest : public ::testing::Test {
 protected:
  DataRingTest() { EXPECT_EQ(ring_.attach(memory_.control(), memory_.data(), 4096), 0); }

  // Writes a record of `size` bytes filled with `fill`; a LOST record first when one is due.
  bool write(uint16_t size, uint8_t fill = 1) {
    OutputHandle handle;
    if (!open(handle, size, fill)) return false;
    ring_.end(handle);
    return true;
  }
  bool open(OutputHandle& handle, uint16_t size, uint8_t fill) {
    uint64_t lost = 0;
    if (!ring_.begin(handle, size, kLostBytes, lost)) return false;
    if (lost != 0) {
      handle.put(perf_event_header{PERF_RECORD_LOST, 0, kLostBytes});
      handle.put(uint64_t{7});
      handle.put(lost);
    }
    handle.put(perf_event_header{PERF_RECORD_SAMPLE, fill, size});
    const Bytes body(size - 8, std::byte{fill});
    EXPECT_EQ(handle.copy(body.data(), body.size()), 0u);
    return true;
  }
  uint64_t published() { return memory_.control()->data_head; }

  Memory memory_{4096, 4096};
  DataRing ring_;
  RingReader reader_ = memory_.reader();
};

TEST_F(DataRingTest, ControlPageIsTheKernels) {
  const perf_event_mmap_page& page = *memory_.control();
  EXPECT_EQ(page.version, 0u);
  EXPECT_EQ(page.compat_version, 0u);
  EXPECT_EQ(page.size, offsetof(perf_event_mmap_page, __reserved));
  EXPECT_EQ(page.cap_bit0_is_deprecated, 1u);
  EXPECT_EQ(page.cap_user_time_zero, 0u);
  EXPECT_EQ(page.data_offset, 4096u);
  EXPECT_EQ(page.data_size, 4096u);
  EXPECT_EQ(page.data_head, 0u);
  EXPECT_EQ(page.data_tail, 0u);
  EXPECT_EQ(page.aux_offset, 8192u);
  EXPECT_EQ(page.aux_size, 4096u);
}

TEST_F(DataRingTest, AttachRefusesBadSizes) {
  DataRing ring;
  EXPECT_EQ(ring.attach(memory_.control(), memory_.data(), 4095), EINVAL);
  EXPECT_EQ(ring.attach(memory_.control(), memory_.data(), 0), EINVAL);
  EXPECT_EQ(ring.attach(memory_.control(), memory_.data(), 32), EINVAL);
  EXPECT_EQ(ring.attach(nullptr, memory_.data(), 4096), EINVAL);
  EXPECT_EQ(ring.attach(memory_.control(), nullptr, 4096), EINVAL);
  EXPECT_FALSE(ring.attached());
}

TEST_F(DataRingTest, D1_UsableSpaceIsSizeMinusOne) {
  EXPECT_FALSE(write(4096));  // the whole ring is one byte too much
  EXPECT_TRUE(write(4088 - kLostBytes));
  EXPECT_EQ(published(), 4088u);
  EXPECT_FALSE(write(8));
}

TEST_F(DataRingTest, D2_NoRoomWritesNothingAndCounts) {
  ASSERT_TRUE(write(4000, 3));
  const Bytes before(memory_.data(), memory_.data() + 4096);
  EXPECT_FALSE(write(104));
  EXPECT_FALSE(write(2000));
  EXPECT_EQ(ring_.lost_pending(), 2u);
  EXPECT_EQ(published(), 4000u);
  EXPECT_EQ(before, Bytes(memory_.data(), memory_.data() + 4096));
}

TEST_F(DataRingTest, D2_NextSuccessReportsTheLossInTheSameReservation) {
  ASSERT_TRUE(write(4000));
  ASSERT_FALSE(write(200));
  ASSERT_FALSE(write(200));
  ASSERT_FALSE(write(200));
  ASSERT_EQ(drain(reader_).size(), 1u);

  OutputHandle handle;
  ASSERT_TRUE(open(handle, 200, 9));
  EXPECT_TRUE(drain(reader_).empty());  // LOST is not published on its own
  ring_.end(handle);
  const auto records = drain(reader_);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(header_of(records[0]).type, static_cast<uint32_t>(PERF_RECORD_LOST));
  Fields lost(records[0]);
  EXPECT_EQ(lost.u64(), 7u);
  EXPECT_EQ(lost.u64(), 3u);
  EXPECT_EQ(header_of(records[1]).type, static_cast<uint32_t>(PERF_RECORD_SAMPLE));
  EXPECT_EQ(ring_.lost_pending(), 0u);
}

TEST_F(DataRingTest, D2_RoomForTheRecordButNotForLostCountsOn) {
  ASSERT_TRUE(write(3992));
  ASSERT_FALSE(write(200));
  EXPECT_FALSE(write(80));  // 96 are free, 80 + 24 are needed
  EXPECT_EQ(ring_.lost_pending(), 2u);
  EXPECT_TRUE(write(64));
  const auto records = drain(reader_);
  ASSERT_EQ(records.size(), 3u);
  Fields lost(records[1]);
  (void)lost.u64();
  EXPECT_EQ(lost.u64(), 2u);
}

TEST_F(DataRingTest, D3_OnlyTheOutermostWriterPublishes) {
  OutputHandle outer;
  ASSERT_TRUE(open(outer, 64, 1));
  OutputHandle middle;
  ASSERT_TRUE(open(middle, 32, 2));
  EXPECT_TRUE(write(16, 3));
  EXPECT_EQ(ring_.nesting(), 2u);
  EXPECT_EQ(published(), 0u);
  ring_.end(middle);
  EXPECT_EQ(published(), 0u);
  EXPECT_TRUE(write(24, 4));
  EXPECT_EQ(published(), 0u);
  ring_.end(outer);
  EXPECT_EQ(published(), 64u + 32 + 16 + 24);
  EXPECT_EQ(ring_.nesting(), 0u);
  std::vector<uint16_t> order;
  for (const auto& record : drain(reader_)) order.push_back(header_of(record).misc);
  EXPECT_EQ(order, (std::vector<uint16_t>{1, 2, 3, 4}));
}

TEST_F(DataRingTest, D3_AnInnerWriterThatFailsLeavesTheOuterIntact) {
  OutputHandle outer;
  ASSERT_TRUE(open(outer, 4000, 1));
  EXPECT_FALSE(write(200, 2));
  EXPECT_EQ(published(), 0u);
  ring_.end(outer);
  EXPECT_EQ(published(), 4000u);
  EXPECT_EQ(ring_.lost_pending(), 1u);
}

TEST_F(DataRingTest, D9_RecordsWrapByteByByte) {
  for (int i = 0; i < 2000; ++i) {
    const auto size = static_cast<uint16_t>(8 * (1 + i % 97));
    const auto fill = static_cast<uint8_t>(i);
    ASSERT_TRUE(write(size, fill));
    const auto records = drain(reader_);
    ASSERT_EQ(records.size(), 1u);
    ASSERT_EQ(records[0].size(), size);
    for (size_t k = 8; k < size; ++k) ASSERT_EQ(records[0][k], std::byte{fill});
  }
  EXPECT_TRUE(memory_.guards_intact());
}

TEST_F(DataRingTest, UnwrittenPartOfAReservationIsZeroed) {
  ASSERT_TRUE(write(512, 0xaa));
  ASSERT_EQ(drain(reader_).size(), 1u);
  for (int lap = 0; lap < 16; ++lap) {
    OutputHandle handle;
    uint64_t lost = 0;
    ASSERT_TRUE(ring_.begin(handle, 512, kLostBytes, lost));
    handle.put(perf_event_header{PERF_RECORD_SAMPLE, 0, 512});
    ring_.end(handle);
    const auto records = drain(reader_);
    ASSERT_EQ(records.size(), 1u);
    for (size_t k = 8; k < 512; ++k) ASSERT_EQ(records[0][k], std::byte{0});
    ASSERT_TRUE(write(24, 0xbb));
    ASSERT_EQ(drain(reader_).size(), 1u);
  }
}

TEST_F(DataRingTest, AHandleCannotWritePastItsReservation) {
  OutputHandle handle;
  uint64_t lost = 0;
  ASSERT_TRUE(ring_.begin(handle, 16, kLostBytes, lost));
  const Bytes much(100, std::byte{0xcc});
  EXPECT_EQ(handle.copy(much.data(), 100), 84u);
  EXPECT_EQ(handle.zero(1), 1u);
  ring_.end(handle);
  EXPECT_EQ(published(), 16u);
  EXPECT_EQ(memory_.data()[16], std::byte{0});
}

TEST_F(DataRingTest, GarbageTailNeitherCorruptsNorLoops) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    memory_.control()->data_tail = random();
    const uint64_t before = ring_.head();
    const auto size = static_cast<uint16_t>(8 * (1 + random() % 512));
    if (write(size, static_cast<uint8_t>(i))) {
      EXPECT_GE(ring_.head(), before + size);
    } else {
      EXPECT_EQ(ring_.head(), before);
    }
  }
  EXPECT_TRUE(memory_.guards_intact());
  // A reader that stores its tail again gets everything working again.
  drain(reader_);
  ASSERT_TRUE(write(64, 5));
  const auto records = drain(reader_);
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(header_of(records.back()).misc, 5);
}

TEST_F(DataRingTest, GarbageHeadIsNeverReadBack) {
  ASSERT_TRUE(write(64, 1));
  memory_.control()->data_head = 0xdeadbeefdeadbeef;
  ASSERT_TRUE(write(64, 2));
  EXPECT_EQ(published(), 128u);
}

TEST_F(DataRingTest, ANewWriterContinuesWhereTheOldOneStopped) {
  ASSERT_TRUE(write(64, 1));
  ASSERT_EQ(drain(reader_).size(), 1u);
  ASSERT_TRUE(write(72, 2));
  ring_.detach();
  ASSERT_EQ(ring_.attach(memory_.control(), memory_.data(), 4096), 0);
  ASSERT_TRUE(write(80, 3));
  const auto records = drain(reader_);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(header_of(records[0]).misc, 2);
  EXPECT_EQ(header_of(records[1]).misc, 3);
}

TEST_F(DataRingTest, D3_PositionsPastFourGigabytesAndTheEndOfU64) {
  for (const uint64_t start : {uint64_t{0xfffff000}, ~uint64_t{0} - 4095}) {
    memory_.control()->data_head = start;
    memory_.control()->data_tail = start;
    ASSERT_EQ(ring_.attach(memory_.control(), memory_.data(), 4096), 0);
    RingReader reader(memory_.control(), memory_.data(), 4096, start);
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(write(512, static_cast<uint8_t>(i)));
      ASSERT_TRUE(write(1024, static_cast<uint8_t>(i)));
      ASSERT_EQ(drain(reader).size(), 2u);
    }
    EXPECT_EQ(reader.counters().bad_heads, 0u);
  }
}

// The model: a queue of records and the two byte counts, with the rule "free = size - 1 - used".
struct Model {
  uint64_t size;
  uint64_t used = 0;
  uint64_t lost = 0;
  std::deque<Bytes> published{};

  bool write(const Bytes& record) {
    const uint64_t need = record.size() + (lost != 0 ? kLostBytes : 0);
    if (size - 1 - used < need) {
      ++lost;
      return false;
    }
    if (lost != 0) {
      Bytes notice(kLostBytes);
      const perf_event_header header{PERF_RECORD_LOST, 0, kLostBytes};
      const uint64_t id = 7;
      std::memcpy(notice.data(), &header, 8);
      std::memcpy(notice.data() + 8, &id, 8);
      std::memcpy(notice.data() + 16, &lost, 8);
      published.push_back(notice);
      lost = 0;
    }
    published.push_back(record);
    used += need;
    return true;
  }
};

class RingProperty : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RingProperty, D9_WriterAndReaderFollowTheModel) {
  const uint64_t size = GetParam();
  Memory memory(size, 4096);
  DataRing ring;
  ASSERT_EQ(ring.attach(memory.control(), memory.data(), size), 0);
  RingReader reader = memory.reader();
  Model model{.size = size};
  std::mt19937_64 random(size);
  uint64_t accepted = 0;
  for (uint64_t step = 0; step < 30000; ++step) {
    if (random() % 3 != 0) {
      Bytes record = pattern(8 * (1 + random() % (size / 16)), step);
      const perf_event_header header{PERF_RECORD_SAMPLE, 0, static_cast<uint16_t>(record.size())};
      std::memcpy(record.data(), &header, 8);
      const bool expected = model.write(record);
      accepted += expected;
      OutputHandle handle;
      uint64_t lost = 0;
      ASSERT_EQ(ring.begin(handle, record.size(), kLostBytes, lost), expected) << step;
      if (!expected) continue;
      if (lost != 0) {
        handle.put(perf_event_header{PERF_RECORD_LOST, 0, kLostBytes});
        handle.put(uint64_t{7});
        handle.put(lost);
      }
      for (size_t at = 0; at < record.size();) {  // in pieces of any size
        const size_t piece = std::min<size_t>(1 + random() % 40, record.size() - at);
        ASSERT_EQ(handle.copy(record.data() + at, piece), 0u);
        at += piece;
      }
      ring.end(handle);
    } else {
      static RecordScratch scratch;
      reader.begin();
      for (uint64_t n = random() % 8; n > 0; --n) {
        const auto record = reader.next(scratch);
        if (model.published.empty()) {
          ASSERT_TRUE(record.empty());
          break;
        }
        ASSERT_EQ(to_bytes(record), model.published.front()) << step;
        model.used -= model.published.front().size();
        model.published.pop_front();
      }
      reader.release();
    }
  }
  EXPECT_GT(accepted, 1000u);
  EXPECT_EQ(ring.lost_pending(), model.lost);
  EXPECT_EQ(reader.counters().corrupt_headers, 0u);
  EXPECT_EQ(reader.counters().bad_heads, 0u);
  EXPECT_TRUE(memory.guards_intact());
}

INSTANTIATE_TEST_SUITE_P(Sizes, RingProperty, ::testing::Values(64, 256, 4096, 65536));

}  // namespace
}  // namespace auxtrail::event
