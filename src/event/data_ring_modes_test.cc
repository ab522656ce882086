// The data ring's other kinds: overwrite, backward, paused; and when its reader is woken. Checklist
// D4 to D7.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "event/data_ring.h"
#include "event/test_support.h"

namespace auxtrail::event {
namespace {

using namespace testing;

class RingModesTest : public ::testing::Test {
 protected:
  void attach(const DataRingMode& mode) {
    ASSERT_EQ(ring_.attach(memory_.control(), memory_.data(), memory_.data_bytes(), mode), 0);
  }
  // A record of `size` bytes that carries `number`.
  bool write(uint64_t number, uint16_t size = 64, uint32_t wakeup_events = 0) {
    OutputHandle handle;
    uint64_t lost = 0;
    if (!ring_.begin(handle, size, 0, lost)) return false;
    handle.put(perf_event_header{PERF_RECORD_SAMPLE, 0, size});
    handle.put(number);
    if (wakeup_events != 0) ring_.count_wakeup_event(wakeup_events);
    ring_.end(handle);
    return true;
  }
  template <class T>
  T at(uint64_t position) const {
    alignas(T) std::byte bytes[sizeof(T)];
    for (size_t i = 0; i < sizeof(T); ++i) {
      bytes[i] = memory_data()[(position + i) % memory_bytes()];
    }
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  // What a reader finds from data_head on: the numbers, newest first, as far as records are whole.
  std::vector<uint64_t> read_backward() {
    std::vector<uint64_t> numbers;
    const uint64_t head = memory_.control()->data_head;
    for (uint64_t offset = 0; offset + 16 <= memory_bytes();) {
      const auto header = at<perf_event_header>(head + offset);
      if (header.size < 16 || offset + header.size > memory_bytes()) break;
      numbers.push_back(at<uint64_t>(head + offset + 8));
      offset += header.size;
    }
    return numbers;
  }
  const std::byte* memory_data() const { return const_cast<Memory&>(memory_).data(); }
  uint64_t memory_bytes() const { return memory_.data_bytes(); }

  Memory memory_{4096, 64};
  DataRing ring_;
};

TEST_F(RingModesTest, D4_BackwardTheHeadFallsAndTheNewestRecordIsFirst) {
  attach({.overwrite = true, .backward = true});
  for (uint64_t number = 1; number <= 3; ++number) EXPECT_TRUE(write(number));
  EXPECT_EQ(memory_.control()->data_head, uint64_t{0} - 3 * 64);
  EXPECT_EQ(read_backward(), (std::vector<uint64_t>{3, 2, 1}));
}

TEST_F(RingModesTest, D4_BackwardOverwritingKeepsTheNewestWholeRecords) {
  attach({.overwrite = true, .backward = true});
  std::mt19937 random(4);
  std::vector<std::pair<uint64_t, uint64_t>> written;  // number, size
  for (uint64_t number = 1; number <= 5000; ++number) {
    const auto size = static_cast<uint16_t>(16 + 8 * (random() % 60));
    ASSERT_TRUE(write(number, size));
    written.emplace_back(number, size);
    if (number % 50 != 0) continue;
    std::vector<uint64_t> expected;
    uint64_t bytes = 0;
    for (auto i = written.rbegin(); i != written.rend(); ++i) {
      if ((bytes += i->second) > memory_bytes()) break;
      expected.push_back(i->first);
    }
    const auto found = read_backward();
    // Behind the last whole record lies the rest of one, which may by chance look like a record.
    ASSERT_GE(found.size(), expected.size());
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), found.begin())) << number;
  }
  EXPECT_TRUE(memory_.guards_intact());
}

TEST_F(RingModesTest, D4_BackwardInNormalModeStopsAtTheTail) {
  attach({.backward = true});
  uint64_t written = 0;
  while (write(written)) ++written;
  EXPECT_EQ(written, 4095U / 64);
  EXPECT_EQ(ring_.lost_pending(), 1U);
  // The reader follows downwards.
  memory_.control()->data_tail = memory_.control()->data_head;
  EXPECT_TRUE(write(99));
}

TEST_F(RingModesTest, B2_OverwriteTheTailIsIgnored) {
  attach({.overwrite = true});
  memory_.control()->data_tail = 0x123456789;
  for (uint64_t number = 0; number < 1000; ++number) EXPECT_TRUE(write(number));
  EXPECT_EQ(memory_.control()->data_head, 64000U);
  EXPECT_EQ(at<uint64_t>(64000 - 64 + 8), 999U);
  EXPECT_EQ(ring_.lost_pending(), 0U);
}

TEST_F(RingModesTest, B2_OverwriteWithRecordsLongerThanTheRing) {
  attach({.overwrite = true});
  const Bytes bytes = pattern(20000);
  OutputHandle handle;
  uint64_t lost = 0;
  ASSERT_TRUE(ring_.begin(handle, 30000, 0, lost));
  EXPECT_EQ(handle.copy(bytes.data(), bytes.size()), 0U);
  for (uint64_t i = 0; i < 4096; ++i) {
    ASSERT_EQ(at<std::byte>(20000 - 4096 + i), bytes[20000 - 4096 + i]) << i;
  }
  ring_.end(handle);  // the rest becomes zeros
  for (uint64_t i = 0; i < 4096; ++i) ASSERT_EQ(at<std::byte>(i), std::byte{0});
  EXPECT_TRUE(memory_.guards_intact());
}

TEST_F(RingModesTest, D5_TheWatermarkIsHalfTheRingAndComparedWithGreater) {
  attach({});
  for (int i = 0; i < 2048 / 64; ++i) write(0);
  EXPECT_FALSE(ring_.poll_pending()) << "2048 bytes are not more than 2048";
  write(0);
  EXPECT_TRUE(ring_.poll_pending());
}

TEST_F(RingModesTest, D5_AnyWatermarkAndNeverMoreThanTheRing) {
  for (const uint64_t watermark : {1, 63, 64, 65, 1000, 4096, 10000}) {
    for (const bool backward : {false, true}) {
      DataRing::init_control_page(*memory_.control(), 4096, memory_bytes());
      attach({.overwrite = true, .backward = backward, .watermark = watermark});
      const uint64_t effective = std::min<uint64_t>(watermark, 4096);
      uint64_t at_wakeup = 0;
      for (uint64_t written = 64; written <= 64000; written += 64) {
        write(0);
        const bool due = written - at_wakeup > effective;
        ASSERT_EQ(ring_.take_poll(), due) << watermark << " at " << written;
        if (due) at_wakeup += effective;
      }
    }
  }
}

TEST_F(RingModesTest, D6_WakesAtEveryNthEvent) {
  attach({.overwrite = true, .watermark = 4096});
  for (int event = 1; event <= 60; ++event) {
    write(0, 16, 5);
    EXPECT_EQ(ring_.take_poll(), event % 5 == 0) << event;
  }
}

TEST_F(RingModesTest, D6_ANestedWriterWakesThroughTheOutermost) {
  attach({});
  OutputHandle outer;
  uint64_t lost = 0;
  ASSERT_TRUE(ring_.begin(outer, 64, 0, lost));
  write(1, 16, 1);
  EXPECT_FALSE(ring_.poll_pending()) << "nothing can be read yet";
  ring_.end(outer);
  EXPECT_TRUE(ring_.poll_pending());
}

TEST_F(RingModesTest, D7_ReadableOnceThenCleared) {
  attach({});
  EXPECT_FALSE(ring_.take_poll());
  write(1, 16, 1);
  EXPECT_TRUE(ring_.take_poll());
  EXPECT_FALSE(ring_.take_poll());
}

TEST_F(RingModesTest, D2_PausedEveryRecordIsLostAndToldAfterwards) {
  attach({});
  ring_.set_paused(true);
  EXPECT_FALSE(write(1));
  EXPECT_FALSE(write(2));
  EXPECT_EQ(ring_.lost_pending(), 2U);
  EXPECT_EQ(memory_.control()->data_head, 0U);
  ring_.set_paused(false);
  OutputHandle handle;
  uint64_t lost = 0;
  ASSERT_TRUE(ring_.begin(handle, 16, 24, lost));
  EXPECT_EQ(lost, 2U);
  ring_.end(handle);
  EXPECT_EQ(memory_.control()->data_head, 40U);
}

}  // namespace
}  // namespace auxtrail::event
