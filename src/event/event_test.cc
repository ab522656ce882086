// Linking samplers to their AUX leader: checklist A10 and A12, faults "leader unfit" and "reference
// leaked".
#include "event/event.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "event/aux_action.h"
#include "event/test_support.h"

namespace auxtrail::event {
namespace {

using namespace testing;

class AuxLinkTest : public ::testing::Test {
 protected:
  AuxLinkTest() {
    EXPECT_EQ(leader_.init(leader_attr(), 1, kScriptedPmu, &script_), 0);
    EXPECT_EQ(sampler_.init(sampler_attr(kUsualSampleType, 4096), 2, kSoftwareTrigger, nullptr), 0);
  }
  void expect_refused(AuxLink why, Event* leader) {
    EXPECT_EQ(get_aux_event(sampler_, leader), why);
    EXPECT_EQ(to_errno(why), EINVAL);
    EXPECT_EQ(sampler_.aux_event, nullptr);
    EXPECT_EQ(leader_.aux_samplers, nullptr);
    EXPECT_LE(leader_.refcount.load(), 1u);
  }

  SnapshotScript script_;
  Event leader_;
  Event sampler_;
};

TEST_F(AuxLinkTest, A10_TakesExactlyOneReference) {
  EXPECT_EQ(leader_.refcount.load(), 1u);
  EXPECT_EQ(get_aux_event(sampler_, &leader_), AuxLink::kOk);
  EXPECT_EQ(sampler_.aux_event, &leader_);
  EXPECT_EQ(leader_.refcount.load(), 2u);
  EXPECT_EQ(get_aux_event(sampler_, &leader_), AuxLink::kAlreadyLinked);
  EXPECT_EQ(leader_.refcount.load(), 2u);
  put_aux_event(sampler_);
  EXPECT_EQ(leader_.refcount.load(), 1u);
  put_aux_event(sampler_);
  EXPECT_EQ(leader_.refcount.load(), 1u);
}

TEST_F(AuxLinkTest, A10_NoLeader) {
  expect_refused(AuxLink::kNoLeader, nullptr);
  EXPECT_EQ(get_aux_event(sampler_, &sampler_), AuxLink::kNoLeader);
}

TEST_F(AuxLinkTest, A10_OutputAndSampleExcludeEachOther) {
  sampler_.attr.aux_output = 1;
  sampler_.attr.config1 = 1;
  expect_refused(AuxLink::kBothKinds, &leader_);
}

TEST_F(AuxLinkTest, A10_OutputNeedsAMatchingLeader) {
  sampler_.attr.aux_sample_size = 0;
  sampler_.attr.aux_output = 1;
  expect_refused(AuxLink::kNoAuxOutput, &leader_);
  sampler_.attr.config1 = 1;
  EXPECT_EQ(get_aux_event(sampler_, &leader_), AuxLink::kOk);
}

TEST_F(AuxLinkTest, A10_LeaderWithoutSnapshot) {
  Event other;
  ASSERT_EQ(other.init(leader_attr(), 3, kSoftwareTrigger, nullptr), 0);
  expect_refused(AuxLink::kNoSnapshot, &other);
  EXPECT_EQ(other.refcount.load(), 1u);
}

TEST_F(AuxLinkTest, A10_LeaderAlreadyGone) {
  close_event(leader_);
  EXPECT_EQ(leader_.refcount.load(), 0u);
  expect_refused(AuxLink::kLeaderGone, &leader_);
  EXPECT_EQ(leader_.refcount.load(), 0u);
}

TEST_F(AuxLinkTest, A10_SizeNeedsALeaderEvenWithoutTheSampleBit) {
  sampler_.attr.sample_type = PERF_SAMPLE_IP;
  EXPECT_TRUE(need_aux_event(sampler_));
  sampler_.attr.sample_type = PERF_SAMPLE_AUX;
  sampler_.attr.aux_sample_size = 0;
  EXPECT_FALSE(need_aux_event(sampler_));
}

TEST_F(AuxLinkTest, A10_PauseAndResumeNeedALeaderThatCan) {
  sampler_.attr.aux_sample_size = 0;
  for (const uint32_t action : {kAuxPause, kAuxResume}) {
    set_aux_action(sampler_.attr, action);
    EXPECT_TRUE(need_aux_event(sampler_));
    expect_refused(AuxLink::kNoLeader, nullptr);
    expect_refused(AuxLink::kNoPause, &leader_);
    const Pmu pausing{.name = "pausing", .capabilities = kPmuCapAuxPause};
    Event leader;
    ASSERT_EQ(leader.init(leader_attr(), 3, pausing, nullptr), 0);
    EXPECT_EQ(get_aux_event(sampler_, &leader), AuxLink::kOk);
    put_aux_event(sampler_);
    sampler_.attr.aux_output = 1;
    expect_refused(AuxLink::kBothKinds, &leader);
    sampler_.attr.aux_output = 0;
    close_event(leader);
  }
  set_aux_action(sampler_.attr, kAuxStartPaused);
  EXPECT_FALSE(need_aux_event(sampler_)) << "that is a leader's own";
}

TEST(AuxAttr, A7_OutputPauseAndResume) {
  const Pmu plain{.name = "plain"};
  const Pmu output{.name = "output", .capabilities = kPmuCapAuxOutput};
  const Pmu pausing{.name = "pausing", .capabilities = kPmuCapAuxPause};
  perf_event_attr attr{};
  EXPECT_EQ(check_aux_attr(attr, plain), 0);
  attr.aux_output = 1;
  EXPECT_EQ(check_aux_attr(attr, plain), EOPNOTSUPP);
  EXPECT_EQ(check_aux_attr(attr, output), 0);
  set_aux_action(attr, kAuxPause);
  EXPECT_EQ(check_aux_attr(attr, output), EOPNOTSUPP);
  attr.aux_output = 0;
  EXPECT_EQ(check_aux_attr(attr, plain), 0) << "its leader must be able to";
  set_aux_action(attr, kAuxPause | kAuxResume | kAuxStartPaused);
  EXPECT_EQ(check_aux_attr(attr, plain), EINVAL) << "told first";
  set_aux_action(attr, kAuxStartPaused);
  EXPECT_EQ(check_aux_attr(attr, plain), EOPNOTSUPP);
  EXPECT_EQ(check_aux_attr(attr, pausing), 0);
}

TEST_F(AuxLinkTest, A12_ClosingTheLeaderFirstLeavesSamplersInError) {
  Event second;
  ASSERT_EQ(second.init(sampler_attr(kUsualSampleType, 64), 3, kSoftwareTrigger, nullptr), 0);
  ASSERT_EQ(get_aux_event(sampler_, &leader_), AuxLink::kOk);
  ASSERT_EQ(get_aux_event(second, &leader_), AuxLink::kOk);
  ASSERT_EQ(sampler_.schedule_in(kTid, 0), 0);
  EXPECT_EQ(leader_.refcount.load(), 3u);
  close_event(leader_);
  EXPECT_EQ(leader_.refcount.load(), 0u);
  for (Event* event : {&sampler_, &second}) {
    EXPECT_EQ(event->aux_event, nullptr);
    EXPECT_EQ(event->state, EventState::kError);
    EXPECT_EQ(event->schedule_in(kTid, 0), EINVAL);
    EXPECT_EQ(event->oncpu, 0u);
  }
  close_event(sampler_);
  EXPECT_EQ(sampler_.refcount.load(), 0u);
}

TEST_F(AuxLinkTest, A12_ClosingASamplerLeavesTheOthers) {
  Event second, third;
  ASSERT_EQ(second.init(sampler_attr(kUsualSampleType, 64), 3, kSoftwareTrigger, nullptr), 0);
  ASSERT_EQ(third.init(sampler_attr(kUsualSampleType, 64), 4, kSoftwareTrigger, nullptr), 0);
  for (Event* event : {&sampler_, &second, &third}) {
    ASSERT_EQ(get_aux_event(*event, &leader_), AuxLink::kOk);
  }
  close_event(second);  // the middle of the list
  close_event(second);  // closing twice is harmless
  EXPECT_EQ(leader_.refcount.load(), 3u);
  EXPECT_EQ(sampler_.aux_event, &leader_);
  EXPECT_EQ(third.aux_event, &leader_);
  close_event(leader_);
  EXPECT_EQ(sampler_.state, EventState::kError);
  EXPECT_EQ(third.state, EventState::kError);
}

TEST(EventTest, InitStates) {
  Event event;
  EXPECT_EQ(event.refcount.load(), 0u);  // zeroed memory is a dead event
  perf_event_attr attr = sampler_attr(PERF_SAMPLE_IP, 0);
  ASSERT_EQ(event.init(attr, 5, kSoftwareTrigger, nullptr), 0);
  EXPECT_EQ(event.state, EventState::kInactive);
  attr.disabled = 1;
  ASSERT_EQ(event.init(attr, 5, kSoftwareTrigger, nullptr), 0);
  EXPECT_EQ(event.state, EventState::kOff);
  EXPECT_EQ(event.schedule_in(0, 0), EINVAL);
  EXPECT_EQ(event.schedule_in(kTid, 0), 0);
  EXPECT_EQ(event.state, EventState::kActive);
  EXPECT_EQ(event.oncpu, kTid);
  event.schedule_out();
  EXPECT_EQ(event.state, EventState::kInactive);
  EXPECT_EQ(event.oncpu, 0u);
}

TEST(EventTest, APmuThatRefusesLeavesADeadEvent) {
  constexpr Pmu kRefusing{.name = "refusing", .event_init = [](Event&) { return ENOENT; }};
  constexpr Pmu kFull{.name = "full", .add = [](Event&, uint32_t) { return EBUSY; }};
  Event event;
  EXPECT_EQ(event.init(leader_attr(), 1, kRefusing, nullptr), ENOENT);
  EXPECT_EQ(event.refcount.load(), 0u);
  ASSERT_EQ(event.init(leader_attr(), 1, kFull, nullptr), 0);
  EXPECT_EQ(event.schedule_in(kTid, 0), EBUSY);
  EXPECT_EQ(event.state, EventState::kInactive);
  EXPECT_EQ(event.oncpu, 0u);
}

}  // namespace
}  // namespace auxtrail::event
