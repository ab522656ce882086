// The memory order of writer and reader of both rings (D8, E2), in every order that the C++ memory
// model has for them; and that each of the four orders is needed: without it a race is found.
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "event/testing/explorer.h"
#include "event/testing/ring_steps.h"

namespace auxtrail::event::testing {
namespace {

constexpr uint64_t kMostRuns = 3'000'000;

// A ring of 64 bytes: two records fit, the third wraps round its end, byte by byte.
class DataRingOrder : public ::testing::Test {
 protected:
  static constexpr uint64_t kDataBytes = 64;
  static constexpr int kRecords = 4;
  static constexpr int kLooks = 2;

  Exploration explore(const Weaken& weaken = {}) {
    Explorer explorer;
    explorer.share(&control_, sizeof control_, "control page");
    explorer.share(data_.data(), kDataBytes, "data");
    explorer.weaken(weaken);
    const std::function<void()> threads[] = {[this] { write(); }, [this] { read(kLooks); }};
    return explorer.explore([this] { prepare(); }, threads, [this] { finish(); }, kMostRuns);
  }
  void prepare() {
    DataRing::init_control_page(control_, 4096, kDataBytes);
    ASSERT_EQ(ring_.attach(&control_, data_.data(), kDataBytes), 0);
    reader_ = RingReader(&control_, data_.data(), kDataBytes);
    written_sum_ = read_sum_ = 0;
    written_ = read_ = 0;
    lost_told_ = 0;
    intact_ = true;
  }
  void write() {
    for (uint64_t i = 1; i <= kRecords; ++i) {
      if (!write_step(ring_, i, lost_told_)) continue;
      written_sum_ += i;
      ++written_;
    }
  }
  void read(int looks) {
    for (int i = 0; i < looks; ++i) {
      const int count = read_step(reader_, scratch_, read_sum_);
      intact_ = intact_ && count >= 0;
      read_ += count;
    }
  }
  void finish() {
    most_read_while_written_ = std::max(most_read_while_written_, read_);
    read(1);
    wrong_ += !intact_ || read_ != written_ || read_sum_ != written_sum_ ||
              lost_told_ + ring_.lost_pending() != static_cast<uint64_t>(kRecords - written_) ||
              reader_.counters().bad_heads != 0 || reader_.counters().corrupt_headers != 0;
    without_loss_ += written_ == kRecords;
  }

  perf_event_mmap_page control_{};
  alignas(8) std::array<std::byte, kDataBytes> data_{};
  DataRing ring_;
  RingReader reader_;
  RecordScratch scratch_;
  uint64_t written_sum_ = 0, read_sum_ = 0;
  int written_ = 0, read_ = 0, most_read_while_written_ = 0;
  bool intact_ = true;
  uint64_t lost_told_ = 0, wrong_ = 0, without_loss_ = 0;
};

TEST_F(DataRingOrder, D8_NoRaceInAnyOrder) {
  const Exploration all = explore();
  std::cout << all.runs << " runs, " << all.atomic_accesses << " atomic accesses, "
            << all.stale_loads << " stale loads\n";
  EXPECT_LT(all.runs, kMostRuns) << "not all orders";
  EXPECT_GT(all.runs, 1'000u);
  EXPECT_GT(all.stale_loads, 500u);
  EXPECT_EQ(all.racy_runs, 0u) << all.first_race;
  EXPECT_EQ(wrong_, 0u);
  // All of it was seen: losses and none, and a reader that reads while the writer writes.
  EXPECT_GT(without_loss_, 0u);
  EXPECT_LT(without_loss_, all.runs);
  EXPECT_GE(most_read_while_written_, 3);
}

TEST_F(DataRingOrder, D8_TheWriterMustReleaseTheHead) {
  EXPECT_GT(explore({&control_.data_head, true}).racy_runs, 0u);
}
TEST_F(DataRingOrder, D8_TheReaderMustAcquireTheHead) {
  EXPECT_GT(explore({&control_.data_head, false}).racy_runs, 0u);
}
TEST_F(DataRingOrder, D8_TheReaderMustReleaseTheTail) {
  EXPECT_GT(explore({&control_.data_tail, true}).racy_runs, 0u);
}
TEST_F(DataRingOrder, D8_TheWriterMustAcquireTheTail) {
  EXPECT_GT(explore({&control_.data_tail, false}).racy_runs, 0u);
}

// An AUX area of 8 bytes in normal mode, transactions of 3.
class AuxRingOrder : public ::testing::Test {
 protected:
  static constexpr uint64_t kAuxBytes = 8;
  static constexpr int kTransactions = 4;

  Exploration explore(const Weaken& weaken = {}) {
    Explorer explorer;
    explorer.share(&control_, sizeof control_, "control page");
    explorer.share(aux_.data(), kAuxBytes, "AUX area");
    explorer.weaken(weaken);
    const std::function<void()> threads[] = {[this] { write(); }, [this] { read(2); }};
    return explorer.explore([this] { prepare(); }, threads, [this] { finish(); }, kMostRuns);
  }
  void prepare() {
    AuxArea::init_control_page(control_, 8192, kAuxBytes);
    AuxMode mode;
    mode.overwrite = false;
    ASSERT_EQ(area_.attach(&control_, aux_.data(), kAuxBytes, mode), 0);
    leader_.aux = &area_;
    written_ = read_ = 0;
    intact_ = true;
  }
  void write() {
    for (int i = 1; i <= kTransactions; ++i) {
      if (aux_write_step(output_, leader_, static_cast<std::byte>(i), 3)) written_ += 3;
    }
  }
  void read(int looks) {
    for (int i = 0; i < looks; ++i) {
      const int count = aux_read_step(control_, aux_.data(), kAuxBytes, 1, kTransactions);
      intact_ = intact_ && count >= 0;
      read_ += count;
    }
  }
  void finish() {
    read(1);
    wrong_ += !intact_ || read_ != written_;
    without_loss_ += written_ == 3 * kTransactions;
  }

  perf_event_mmap_page control_{};
  alignas(8) std::array<std::byte, kAuxBytes> aux_{};
  AuxArea area_;
  AuxOutput output_;
  Event leader_;
  int written_ = 0, read_ = 0;
  bool intact_ = true;
  uint64_t wrong_ = 0, without_loss_ = 0;
};

TEST_F(AuxRingOrder, E2_NoRaceInAnyOrder) {
  const Exploration all = explore();
  std::cout << all.runs << " runs, " << all.atomic_accesses << " atomic accesses, "
            << all.stale_loads << " stale loads\n";
  EXPECT_LT(all.runs, kMostRuns) << "not all orders";
  EXPECT_GT(all.runs, 1'000u);
  EXPECT_EQ(all.racy_runs, 0u) << all.first_race;
  EXPECT_EQ(wrong_, 0u);
  EXPECT_GT(without_loss_, 0u);
  EXPECT_LT(without_loss_, all.runs);
}

TEST_F(AuxRingOrder, E2_TheWriterMustReleaseTheHead) {
  EXPECT_GT(explore({&control_.aux_head, true}).racy_runs, 0u);
}
TEST_F(AuxRingOrder, E2_TheReaderMustAcquireTheHead) {
  EXPECT_GT(explore({&control_.aux_head, false}).racy_runs, 0u);
}
TEST_F(AuxRingOrder, E2_TheReaderMustReleaseTheTail) {
  EXPECT_GT(explore({&control_.aux_tail, true}).racy_runs, 0u);
}
TEST_F(AuxRingOrder, E2_TheWriterMustAcquireTheTail) {
  EXPECT_GT(explore({&control_.aux_tail, false}).racy_runs, 0u);
}

}  // namespace
}  // namespace auxtrail::event::testing
