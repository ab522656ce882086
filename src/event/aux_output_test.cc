// Transactions on the AUX area: checklist E1 to E7, and sizes of 4 GiB and more.
#include "event/aux_output.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/unique_fd.h"
#include "event/overflow.h"
#include "event/test_support.h"

namespace auxtrail::event {
namespace {

using namespace testing;

struct AuxRecord {
  uint64_t offset, size, flags;
  bool operator==(const AuxRecord&) const = default;
};

class AuxOutputTest : public ::testing::Test {
 protected:
  explicit AuxOutputTest(uint64_t aux_bytes = 4096) : memory_(4096, aux_bytes) {
    EXPECT_EQ(ring_.attach(memory_.control(), memory_.data(), memory_.data_bytes()), 0);
    EXPECT_EQ(event_.init(leader_attr(), 1, kScriptedPmu, &script_), 0);
    event_.ring = &ring_;
    event_.aux = &area_;
    EXPECT_EQ(event_.schedule_in(kTid, 0), 0);
  }
  ~AuxOutputTest() override { close_event(event_); }

  void attach(const AuxMode& mode) {
    ASSERT_EQ(area_.attach(memory_.control(), memory_.aux(), memory_.aux_bytes(), mode), 0);
  }
  void write(uint64_t bytes, uint64_t flags = 0) {
    AuxOutput output;
    ASSERT_TRUE(output.begin(event_));
    output.flag(flags);
    output.end(bytes);
  }
  std::vector<AuxRecord> records() {
    std::vector<AuxRecord> found;
    for (const Bytes& record : drain(reader_)) {
      EXPECT_EQ(header_of(record).type, static_cast<uint32_t>(PERF_RECORD_AUX));
      Fields fields(record);
      const uint64_t offset = fields.u64();
      const uint64_t size = fields.u64();
      found.push_back({offset, size, fields.u64()});
      EXPECT_EQ(fields.left(), sample_id_bytes(event_));
    }
    return found;
  }
  void set_tail(uint64_t tail) { memory_.control()->aux_tail = tail; }

  Memory memory_;
  SnapshotScript script_;
  DataRing ring_;
  AuxArea area_;
  Event event_;
  RingReader reader_ = memory_.reader();
};

TEST_F(AuxOutputTest, E1_NoSpaceDisablesTheEventAndWakesTheReader) {
  attach({.overwrite = false});
  write(4095);
  (void)ring_.take_poll();
  AuxOutput output;
  EXPECT_FALSE(output.begin(event_));
  EXPECT_FALSE(output.is_open());
  EXPECT_FALSE(area_.in_transaction());
  EXPECT_TRUE(ring_.take_poll());
  EXPECT_TRUE(run_pending(event_));
  EXPECT_EQ(event_.state, EventState::kOff);
  EXPECT_EQ(event_.oncpu, 0U);
  EXPECT_FALSE(run_pending(event_)) << "once";
  // With the reader's progress there is room again.
  set_tail(100);
  ASSERT_TRUE(output.begin(event_));
  EXPECT_EQ(output.size(), 100U);
  EXPECT_EQ(output.head(), 4095U);
  output.end(0);
}

TEST_F(AuxOutputTest, E1_AGarbageTailMeansNoRoom) {
  attach({.overwrite = false});
  write(1000);
  for (const uint64_t tail :
       {uint64_t{1000} - 4096, uint64_t{1} << 63, uint64_t{1001}, uint64_t{5096}}) {
    set_tail(tail);
    AuxOutput output;
    EXPECT_FALSE(output.begin(event_)) << tail;
    EXPECT_EQ(area_.written(), 1000U);
  }
  // A tail that could be, however wrong, gives room inside the area and nothing else.
  for (uint64_t tail = 0; tail <= 1000; ++tail) {
    set_tail(tail);
    AuxOutput output;
    ASSERT_TRUE(output.begin(event_));
    EXPECT_EQ(output.size(), 4095 - (1000 - tail));
    output.end(0);
  }
}

TEST_F(AuxOutputTest, E2_EndMovesTheHeadAndTellsWhatIsThere) {
  attach({.overwrite = false});
  write(100);
  EXPECT_EQ(memory_.control()->aux_head, 100U);
  set_tail(100);
  write(4095);
  EXPECT_EQ(memory_.control()->aux_head, 4195U) << "grows for ever";
  EXPECT_EQ(records(), (std::vector<AuxRecord>{{0, 100, 0}, {100, 4095, 0}}));
}

// The two stores are as far apart as can be seen from one thread: the page of aux_head is made
// read-only, so that its store faults, and the handler looks at data_head.
TEST_F(AuxOutputTest, E2_TheRecordComesBeforeTheHead) {
  constexpr size_t kPage = 4096;
  const Mapping page(
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), kPage);
  auto* const control = reinterpret_cast<perf_event_mmap_page*>(page.data());
  ASSERT_EQ(area_.attach(control, memory_.aux(), memory_.aux_bytes(), {.overwrite = false}), 0);
  AuxOutput output;
  ASSERT_TRUE(output.begin(event_));

  static perf_event_mmap_page* data_control;
  static void* aux_page;
  static uint64_t head_at_fault;
  data_control = memory_.control();
  aux_page = page.data();
  head_at_fault = 0;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {
    head_at_fault = data_control->data_head;
    mprotect(aux_page, kPage, PROT_READ | PROT_WRITE);
  };
  ASSERT_EQ(sigaction(SIGSEGV, &action, &before), 0);
  ASSERT_EQ(mprotect(page.data(), kPage, PROT_READ), 0);
  output.end(8);
  ASSERT_EQ(sigaction(SIGSEGV, &before, nullptr), 0);
  EXPECT_EQ(control->aux_head, 8U);
  EXPECT_EQ(head_at_fault, memory_.control()->data_head) << "the record was there already";
  EXPECT_NE(head_at_fault, 0U);
}

// A lost record is counted and the head moves all the same.
TEST_F(AuxOutputTest, E2_WithoutRoomInTheDataRing) {
  attach({.overwrite = false});
  OutputHandle filler;
  uint64_t lost = 0;
  ASSERT_TRUE(ring_.begin(filler, 4064, 0, lost));
  filler.put(perf_event_header{PERF_RECORD_SAMPLE, 0, 4064});
  ring_.end(filler);
  write(8);
  EXPECT_EQ(memory_.control()->aux_head, 8U);
  EXPECT_EQ(ring_.lost_pending(), 1U);
  EXPECT_EQ(event_.lost.load(), 1U);
}

TEST_F(AuxOutputTest, E2_ARecordIsWrittenOnlyIfItSaysSomething) {
  for (const bool overwrite : {false, true}) {
    attach({.overwrite = overwrite});
    const uint64_t mode = overwrite ? PERF_AUX_FLAG_OVERWRITE : 0;
    const auto told = [&](uint64_t bytes, uint64_t flags) {
      write(bytes, flags);
      return records();
    };
    EXPECT_TRUE(told(0, 0).empty());
    EXPECT_TRUE(told(0, PERF_AUX_FLAG_CORESIGHT_FORMAT_RAW).empty()) << "format flags alone";
    EXPECT_TRUE(told(0, PERF_AUX_FLAG_OVERWRITE).empty());
    EXPECT_EQ(told(0, PERF_AUX_FLAG_PARTIAL),
              (std::vector<AuxRecord>{{0, 0, mode | PERF_AUX_FLAG_PARTIAL}}));
    EXPECT_EQ(told(8, 0), (std::vector<AuxRecord>{{0, 8, mode}}));
  }
}

TEST_F(AuxOutputTest, E3_OverwriteModeTellsTheOffsetAndNeverWakes) {
  attach({.overwrite = true, .watermark = 16});
  for (uint64_t round = 0; round < 20; ++round) {
    AuxOutput output;
    ASSERT_TRUE(output.begin(event_)) << "whatever the tail";
    EXPECT_EQ(output.size(), 0U);
    const Bytes bytes = pattern(1000);
    area_.write(bytes.data(), bytes.size());
    output.end(1000);
    EXPECT_EQ(memory_.control()->aux_head, (round + 1) * 1000 % 4096);
    const auto found = records();
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0], (AuxRecord{(round + 1) * 1000 % 4096, 1000, PERF_AUX_FLAG_OVERWRITE}));
    EXPECT_FALSE(ring_.take_poll());
  }
}

TEST_F(AuxOutputTest, E4_TheWatermarkIsHalfTheAreaAndComparedWithAtLeast) {
  attach({.overwrite = false});
  write(2047);
  EXPECT_FALSE(ring_.take_poll());
  write(1);
  EXPECT_TRUE(ring_.take_poll()) << "2048 is at least 2048";
}

TEST_F(AuxOutputTest, E4_TheWakeupMarkIsRoundedDown) {
  attach({.overwrite = false, .watermark = 100});
  AuxOutput output;
  ASSERT_TRUE(output.begin(event_));
  EXPECT_EQ(output.wakeup(), 100U);
  output.end(350);
  EXPECT_TRUE(ring_.take_poll());
  // Due again at 400, not at 450.
  ASSERT_TRUE(output.begin(event_));
  EXPECT_EQ(output.wakeup(), 400U);
  output.end(49);
  EXPECT_FALSE(ring_.take_poll());
  write(1);
  EXPECT_TRUE(ring_.take_poll());
}

TEST_F(AuxOutputTest, E5_TruncatedWakesAndDisables) {
  for (const bool overwrite : {false, true}) {
    attach({.overwrite = overwrite});
    write(8, PERF_AUX_FLAG_TRUNCATED);
    EXPECT_TRUE(ring_.take_poll());
    EXPECT_EQ(event_.state, EventState::kActive) << "not in the unit's interrupt";
    EXPECT_TRUE(run_pending(event_));
    EXPECT_EQ(event_.state, EventState::kOff);
    event_.state = EventState::kInactive;
    ASSERT_EQ(event_.schedule_in(kTid, 0), 0);
  }
}

TEST_F(AuxOutputTest, E6_SkippingBeyondTheHandle) {
  attach({.overwrite = false, .watermark = 1000});
  set_tail(0);
  write(500);
  AuxOutput output;
  EXPECT_EQ(output.skip(0), ENOSPC) << "no transaction";
  ASSERT_TRUE(output.begin(event_));
  EXPECT_EQ(output.size(), 3595U);
  EXPECT_EQ(output.skip(3596), ENOSPC);
  EXPECT_EQ(output.head(), 500U) << "nothing changed";
  (void)ring_.take_poll();
  EXPECT_EQ(output.skip(500), 0);
  EXPECT_EQ(output.head(), 1000U);
  EXPECT_EQ(output.size(), 3095U);
  EXPECT_EQ(output.wakeup(), 2000U);
  EXPECT_EQ(memory_.control()->aux_head, 1000U);
  EXPECT_TRUE(ring_.take_poll()) << "skipped bytes count";
  output.end(10);
  (void)records();
  EXPECT_EQ(area_.written(), 1010U);
}

TEST_F(AuxOutputTest, E7_ANestedBeginIsRefused) {
  attach({.overwrite = false});
  AuxOutput outer;
  AuxOutput inner;
  ASSERT_TRUE(outer.begin(event_));
  EXPECT_FALSE(inner.begin(event_));
  EXPECT_FALSE(outer.begin(event_));
  EXPECT_FALSE(event_.pending_disable.load()) << "that is no overrun";
  outer.end(8);
  EXPECT_TRUE(inner.begin(event_));
  inner.end(8);
  EXPECT_EQ(records(), (std::vector<AuxRecord>{{0, 8, 0}, {8, 8, 0}}));
}

TEST_F(AuxOutputTest, B6_AnAreaThatIsBeingUnmappedTakesNoTransaction) {
  attach({.overwrite = false});
  AuxOutput output;
  ASSERT_TRUE(output.begin(event_));
  area_.refuse_transactions();
  output.end(8);
  EXPECT_FALSE(output.begin(event_));
  area_.detach();
  EXPECT_FALSE(output.begin(event_));
}

TEST_F(AuxOutputTest, E2_AnInheritedEventWritesIntoItsParentsAreaAndRing) {
  attach({.overwrite = false});
  Event child;
  ASSERT_EQ(child.init(leader_attr(), 2, kScriptedPmu, &script_), 0);
  child.parent = &event_;
  AuxOutput output;
  ASSERT_TRUE(output.begin(child));
  EXPECT_EQ(output.area(), &area_);
  output.flag(PERF_AUX_FLAG_TRUNCATED);
  output.end(64);
  EXPECT_EQ(records(), (std::vector<AuxRecord>{{0, 64, PERF_AUX_FLAG_TRUNCATED}}));
  EXPECT_TRUE(ring_.take_poll()) << "the parent's reader";
  EXPECT_TRUE(child.pending_disable.load());
  EXPECT_FALSE(event_.pending_disable.load());
  close_event(child);
}

// The area is reserved, not filled: the pages that nobody touches cost nothing.
TEST(LargeAuxArea, E2_EightGibibytes) {
  constexpr uint64_t kBytes = uint64_t{8} << 30;
  void* const reserved = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) GTEST_SKIP() << "8 GiB of address space are not to be had";
  const Mapping mapping(reserved, kBytes);
  Memory memory(4096, 64);
  DataRing ring;
  AuxArea area;
  Event event;
  ASSERT_EQ(ring.attach(memory.control(), memory.data(), 4096), 0);
  ASSERT_EQ(event.init(leader_attr(), 1, kScriptedPmu, nullptr), 0);
  event.ring = &ring;
  event.aux = &area;
  ASSERT_EQ(area.attach(memory.control(), mapping.data(), kBytes, {.overwrite = false}), 0);
  EXPECT_EQ(area.watermark(), UINT32_MAX) << "half of it, but the field has 32 bits";

  AuxOutput output;
  ASSERT_TRUE(output.begin(event));
  EXPECT_EQ(output.size(), kBytes - 1);
  output.end(kBytes - 100);
  EXPECT_TRUE(ring.take_poll());
  memory.control()->aux_tail = kBytes - 100;
  ASSERT_TRUE(output.begin(event));
  const Bytes bytes = pattern(200);
  area.place(output.head(), bytes.data(), bytes.size());
  output.end(200);
  EXPECT_EQ(memory.control()->aux_head, kBytes + 100);
  EXPECT_EQ(mapping.data()[kBytes - 1], bytes[99]);
  EXPECT_EQ(mapping.data()[0], bytes[100]);

  // In overwrite mode, a snapshot across the end and one of the size that a u32 cannot hold.
  ASSERT_EQ(area.attach(memory.control(), mapping.data(), kBytes), 0);
  area.move_head(kBytes - 8, false);
  area.write(bytes.data(), 16);
  EXPECT_EQ(area.head(), 8U);
  EXPECT_EQ(area.written(), kBytes + 8);
  area.move_head(8, true);
  EXPECT_EQ(area.written(), 2 * kBytes + 8) << "a full lap is told apart from none";
  OutputHandle handle;
  uint64_t lost = 0;
  const uint64_t position = ring.head();
  ASSERT_TRUE(ring.begin(handle, 16, 0, lost));
  EXPECT_EQ(area.copy_newest(handle, 16), 16);
  ring.end(handle);
  EXPECT_EQ(std::memcmp(memory.data() + position, bytes.data(), 16), 0);
  close_event(event);
}

}  // namespace
}  // namespace auxtrail::event
