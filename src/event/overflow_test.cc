// What an overflow does besides its sample: aux_pause and aux_resume (checklist F1), event_limit.
#include "event/overflow.h"

#include <gtest/gtest.h>

#include <string>

#include "event/aux_action.h"
#include "event/test_support.h"

namespace auxtrail::event {
namespace {

using namespace testing;

// Writes down what it is asked for: p(ause), r(esume), + (added), - (deleted), S(napshot).
struct Log {
  std::string text;
  std::function<void()> in_pause;
};

Log& log_of(const Event& event) { return *static_cast<Log*>(event.hw.context); }

int add(Event& event, uint32_t) {
  log_of(event).text += event.hw.aux_paused ? "(+)" : "+";
  event.hw.stopped = false;
  return 0;
}
void del(Event& event, uint32_t) {
  log_of(event).text += '-';
  event.hw.stopped = true;
}
void start(Event& event, uint32_t flags) {
  if (flags == kEfResume) log_of(event).text += 'r';
}
void stop(Event& event, uint32_t flags) {
  if (flags != kEfPause) return;
  log_of(event).text += 'p';
  if (log_of(event).in_pause) log_of(event).in_pause();
}
int64_t snapshot(Event& event, OutputHandle& handle, uint64_t size) {
  log_of(event).text += 'S';
  return event.aux->copy_newest(handle, size);
}

constexpr Pmu kPausing{.name = "pausing",
                       .capabilities = kPmuCapAuxPause,
                       .add = add,
                       .del = del,
                       .start = start,
                       .stop = stop,
                       .snapshot_aux = snapshot};

class PauseTest : public ::testing::Test {
 protected:
  PauseTest() {
    EXPECT_EQ(ring_.attach(memory_.control(), memory_.data(), memory_.data_bytes()), 0);
    EXPECT_EQ(area_.attach(memory_.control(), memory_.aux(), memory_.aux_bytes()), 0);
  }
  ~PauseTest() override {
    for (Event* event : {&pauser_, &resumer_, &sampler_, &leader_}) close_event(*event);
  }
  void open(uint32_t leader_action = 0) {
    perf_event_attr attr = leader_attr();
    set_aux_action(attr, leader_action);
    ASSERT_EQ(leader_.init(attr, 1, kPausing, &log_), 0);
    leader_.ring = &ring_;
    leader_.aux = &area_;
    ASSERT_EQ(leader_.schedule_in(kTid, kEfStart), 0);
    add_sibling(pauser_, kAuxPause, 0);
    add_sibling(resumer_, kAuxResume, 0);
    add_sibling(sampler_, 0, 64);
  }
  void add_sibling(Event& event, uint32_t action, uint32_t aux_sample_size) {
    perf_event_attr attr = sampler_attr(kUsualSampleType, aux_sample_size);
    set_aux_action(attr, action);
    ASSERT_EQ(event.init(attr, 2, kSoftwareTrigger, nullptr), 0);
    ASSERT_EQ(get_aux_event(event, &leader_), AuxLink::kOk);
    event.ring = &ring_;
    ASSERT_EQ(event.schedule_in(kTid, kEfStart), 0);
  }
  Outcome overflow(Event& event) {
    SampleData data = usual_data();
    return event_overflow(event, data);
  }

  Memory memory_{1 << 16, 4096};
  DataRing ring_;
  AuxArea area_;
  Log log_;
  Event leader_, pauser_, resumer_, sampler_;
};

TEST_F(PauseTest, F1_PauseComesBeforeTheSampleAndResumeAfterIt) {
  open();
  // Samplers with AUX data of their own show where in the order their sample is.
  pauser_.attr.aux_sample_size = resumer_.attr.aux_sample_size = 64;
  log_.text.clear();
  EXPECT_EQ(overflow(pauser_), Outcome::kWritten);
  EXPECT_EQ(log_.text, "pS");
  EXPECT_EQ(overflow(resumer_), Outcome::kWritten);
  EXPECT_EQ(log_.text, "pSSr");
}

TEST_F(PauseTest, F1_Idempotent) {
  open();
  log_.text.clear();
  overflow(resumer_);
  EXPECT_EQ(log_.text, "") << "it runs";
  overflow(pauser_);
  overflow(pauser_);
  EXPECT_EQ(log_.text, "p");
  overflow(resumer_);
  overflow(resumer_);
  EXPECT_EQ(log_.text, "pr");
}

TEST_F(PauseTest, F1_IgnoredWhenNested) {
  open();
  log_.text.clear();
  log_.in_pause = [this] {
    log_.in_pause = nullptr;
    overflow(resumer_);
  };
  EXPECT_EQ(overflow(pauser_), Outcome::kWritten);
  EXPECT_EQ(log_.text, "p") << "the resume that came inside had no effect";
  EXPECT_TRUE(leader_.hw.aux_paused);
  overflow(resumer_);
  EXPECT_EQ(log_.text, "pr");
}

TEST_F(PauseTest, F1_StartPausedUntilTheFirstResume) {
  open(kAuxStartPaused);
  EXPECT_EQ(log_.text, "(+)") << "on its PMU, tracing nothing";
  overflow(pauser_);
  EXPECT_EQ(log_.text, "(+)");
  overflow(resumer_);
  EXPECT_EQ(log_.text, "(+)r");
}

TEST_F(PauseTest, F1_ASnapshotWhilePausedCopiesAndStaysPaused) {
  open();
  const Bytes bytes = pattern(64);
  area_.write(bytes.data(), bytes.size());
  overflow(pauser_);
  RingReader reader = memory_.reader();
  (void)drain(reader);
  log_.text.clear();
  EXPECT_EQ(overflow(sampler_), Outcome::kWritten);
  EXPECT_EQ(log_.text, "S");
  EXPECT_TRUE(leader_.hw.aux_paused);
  const auto records = drain(reader);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(std::memcmp(records[0].data() + records[0].size() - 64, bytes.data(), 64), 0);
}

TEST_F(PauseTest, F1_ResumeAfterStopDoesNothing) {
  open();
  overflow(pauser_);
  leader_.schedule_out();
  log_.text.clear();
  overflow(resumer_);
  EXPECT_EQ(log_.text, "") << "a leader that is not there is not started";
  EXPECT_FALSE(leader_.hw.aux_paused) << "but it will start running";
}

TEST_F(PauseTest, F1_WithoutAnAreaNothingHappens) {
  open();
  log_.text.clear();
  area_.detach();
  overflow(pauser_);
  EXPECT_EQ(log_.text, "");
  EXPECT_FALSE(leader_.hw.aux_paused);
}

TEST_F(PauseTest, A12_PauseAndResumeOfALeaderThatIsGone) {
  open();
  close_event(leader_);
  for (Event* event : {&pauser_, &resumer_}) {
    EXPECT_EQ(event->state, EventState::kError);
    EXPECT_EQ(overflow(*event), Outcome::kInactive);
  }
}

TEST_F(PauseTest, AnEventDisablesItselfAtItsLimit) {
  open();
  sampler_.event_limit.store(3);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(overflow(sampler_), Outcome::kWritten);
    EXPECT_FALSE(run_pending(sampler_));
  }
  EXPECT_EQ(overflow(sampler_), Outcome::kWritten) << "the third is still written";
  EXPECT_TRUE(run_pending(sampler_));
  EXPECT_EQ(sampler_.state, EventState::kOff);
  EXPECT_EQ(overflow(sampler_), Outcome::kInactive);
}

TEST_F(PauseTest, D6_AnEventsWakeupEvents) {
  open();
  sampler_.attr.wakeup_events = 2;
  for (int i = 1; i <= 8; ++i) {
    overflow(sampler_);
    EXPECT_EQ(ring_.take_poll(), i % 2 == 0) << i;
  }
  sampler_.attr.watermark = 1;  // then the field is a watermark, and the ring's business
  for (int i = 1; i <= 8; ++i) {
    overflow(sampler_);
    EXPECT_FALSE(ring_.take_poll());
  }
}

}  // namespace
}  // namespace auxtrail::event
