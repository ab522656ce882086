// The AUX area in overwrite mode: checklist C3 and E3.
#include "event/aux_area.h"

#include <gtest/gtest.h>

#include <random>

#include "event/test_support.h"

namespace auxtrail::event {
namespace {

using namespace testing;

// Runs `copy` into a reservation of `size_bytes` and returns what a reader then sees.
template <class Copy>
Bytes copied(uint64_t size_bytes, Copy&& copy) {
  Memory memory(1 << 18, 8);
  DataRing ring;
  EXPECT_EQ(ring.attach(memory.control(), memory.data(), memory.data_bytes()), 0);
  OutputHandle handle;
  uint64_t lost = 0;
  EXPECT_TRUE(ring.begin(handle, size_bytes, 0, lost));
  copy(handle);
  const uint64_t done = size_bytes - handle.remaining();
  ring.end(handle);
  return {memory.data(), memory.data() + done};
}

class AuxAreaTest : public ::testing::Test {
 protected:
  AuxAreaTest() { EXPECT_EQ(area_.attach(memory_.control(), memory_.aux(), kSize), 0); }
  void write(const Bytes& bytes) {
    area_.write(bytes.data(), bytes.size());
    all_.insert(all_.end(), bytes.begin(), bytes.end());
  }
  // The last `count` bytes of everything written, with zeros in front when there are not enough.
  Bytes expected(size_t count) const {
    Bytes result(count > all_.size() ? count - all_.size() : 0);
    result.insert(result.end(), all_.end() - std::min(count, all_.size()), all_.end());
    return result;
  }
  Bytes newest(uint64_t count) {
    return copied(count, [&](OutputHandle& handle) {
      EXPECT_EQ(area_.copy_newest(handle, count), static_cast<int64_t>(std::min(count, kSize)));
    });
  }

  static constexpr uint64_t kSize = 8192;
  Memory memory_{4096, kSize};
  AuxArea area_;
  Bytes all_;
};

TEST_F(AuxAreaTest, AttachRefusesBadSizes) {
  AuxArea area;
  EXPECT_EQ(area.attach(nullptr, memory_.aux(), 8191), EINVAL);
  EXPECT_EQ(area.attach(nullptr, memory_.aux(), 0), EINVAL);
  EXPECT_EQ(area.attach(nullptr, memory_.aux(), 4), EINVAL);
  EXPECT_EQ(area.attach(nullptr, nullptr, 4096), EINVAL);
  EXPECT_FALSE(area.attached());
}

TEST_F(AuxAreaTest, C3_NewestBytesOldestFirst) {
  write(pattern(1000));
  EXPECT_EQ(newest(8), expected(8));
  EXPECT_EQ(newest(1000), expected(1000));
}

TEST_F(AuxAreaTest, C3_UnwrittenPartIsLeadingZeros) {
  write(pattern(100));
  const Bytes got = newest(512);
  EXPECT_EQ(got, expected(512));
  EXPECT_EQ(got[411], std::byte{0});
  EXPECT_EQ(got[412], std::byte{1});
  EXPECT_EQ(newest(kSize), expected(kSize));
}

TEST_F(AuxAreaTest, C3_StaleBytesOfAFormerOwnerAreNotPublished) {
  write(pattern(kSize));
  ASSERT_EQ(area_.attach(memory_.control(), memory_.aux(), kSize), 0);
  all_.clear();
  EXPECT_EQ(newest(256), Bytes(256));
  write(pattern(16));
  EXPECT_EQ(newest(256), expected(256));
}

TEST_F(AuxAreaTest, C3_WrapsAtTheEnd) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 500; ++i) {
    write(pattern(random() % 3000, random() % 251));
    ASSERT_EQ(area_.head(), all_.size() % kSize);
    const uint64_t count = random() % (kSize + 1);
    ASSERT_EQ(newest(count), expected(count)) << i;
  }
  EXPECT_EQ(newest(kSize), expected(kSize));
  EXPECT_TRUE(memory_.guards_intact());
}

TEST_F(AuxAreaTest, C3_EqualPositionsMeanOneFullLap) {
  write(pattern(kSize + 1000));
  const Bytes lap = copied(kSize, [&](OutputHandle& handle) {
    EXPECT_EQ(area_.copy_out(handle, area_.head(), area_.head()), static_cast<int64_t>(kSize));
  });
  EXPECT_EQ(lap, expected(kSize));
  // Positions are taken modulo the size.
  const Bytes part = copied(100, [&](OutputHandle& handle) {
    EXPECT_EQ(area_.copy_out(handle, 7 * kSize + 900, 9 * kSize + 1000), 100);
  });
  EXPECT_EQ(part, expected(100));
}

TEST_F(AuxAreaTest, CopyIntoTooSmallAHandleIsAnError) {
  write(pattern(kSize));
  const Bytes got =
      copied(64, [&](OutputHandle& handle) { EXPECT_EQ(area_.copy_out(handle, 0, 128), -EFAULT); });
  EXPECT_EQ(got.size(), 64u);
}

TEST_F(AuxAreaTest, WritingMoreThanAWholeAreaKeepsTheNewest) {
  write(pattern(5));
  write(pattern(3 * kSize + 123));
  EXPECT_EQ(area_.written(), 3 * kSize + 128);
  EXPECT_EQ(newest(kSize), expected(kSize));
  EXPECT_TRUE(memory_.guards_intact());
}

TEST_F(AuxAreaTest, E3_AuxHeadIsTheOffsetInsideTheBuffer) {
  write(pattern(kSize + 24));
  EXPECT_EQ(memory_.control()->aux_head, 24u);
  EXPECT_EQ(memory_.control()->aux_tail, 0u);
}

TEST_F(AuxAreaTest, AUnitThatWritesInPlaceMovesTheHead) {
  const Bytes bytes = pattern(100);
  std::memcpy(area_.bytes() + area_.head(), bytes.data(), 100);
  area_.move_head(100, false);
  all_ = bytes;
  EXPECT_EQ(newest(100), expected(100));
  EXPECT_EQ(newest(200), expected(200));
  area_.move_head(100, false);
  EXPECT_EQ(area_.written(), 100u);
  area_.move_head(60, false);  // past the end and round to 60
  EXPECT_EQ(area_.written(), kSize + 60);
  EXPECT_EQ(area_.head(), 60u);
}

TEST_F(AuxAreaTest, ClaimedBytesAreInOnePieceAndCountOnceCommitted) {
  const Bytes bytes = pattern(100);
  std::memcpy(area_.claim(200), bytes.data(), 100);
  EXPECT_EQ(area_.written(), 0u);
  area_.commit(100);
  all_ = bytes;
  EXPECT_EQ(newest(100), expected(100));
  EXPECT_EQ(memory_.control()->aux_head, 100u);
}

TEST_F(AuxAreaTest, ClaimPadsToTheEndWhereItIsTooNear) {
  write(pattern(kSize + kSize - 50));
  EXPECT_EQ(area_.claim(50), area_.bytes() + kSize - 50);
  EXPECT_EQ(area_.written(), 2 * kSize - 50);
  EXPECT_EQ(area_.claim(51), area_.bytes());
  all_.resize(all_.size() + 50);
  EXPECT_EQ(area_.written(), 2 * kSize);
  EXPECT_EQ(newest(300), expected(300));
  EXPECT_EQ(area_.claim(kSize), area_.bytes());
}

// A unit that wrote exactly one lap stands where it was: full, not empty.
TEST_F(AuxAreaTest, AFullLapBetweenTwoUpdatesIsAFullBuffer) {
  const Bytes bytes = pattern(kSize);
  std::memcpy(area_.bytes(), bytes.data(), kSize);
  area_.move_head(0, true);
  all_ = bytes;
  EXPECT_EQ(area_.written(), kSize);
  EXPECT_EQ(newest(kSize), expected(kSize));
}

TEST_F(AuxAreaTest, GuardCoversItsScopeOnly) {
  EXPECT_FALSE(area_.in_sampling());
  {
    AuxSamplingGuard guard(area_);
    EXPECT_TRUE(area_.in_sampling());
  }
  EXPECT_FALSE(area_.in_sampling());
}

}  // namespace
}  // namespace auxtrail::event
