// Pausing and resuming the PT PMU (F1): by its samplers' aux_pause and aux_resume, in any order
// with start, stop and snapshots, and from within each of them.
#include "event/aux_action.h"
#include "event/overflow.h"
#include "pmu/testing/pt_test_support.h"

namespace auxtrail::pmu {
namespace {

using namespace testing;  // NOLINT

class PtPauseTest : public ::testing::Test {
 protected:
  void pause() { pause_aux(group_.leader, true); }
  void resume() { pause_aux(group_.leader, false); }
  bool on() const { return group_.unit.on(); }

  PtGroup group_;
  Event& sampler_ = group_.add_sampler(64);
};

TEST_F(PtPauseTest, F1_PausedStaysPausedThroughSnapshots) {
  group_.start();
  group_.unit.trace(100);
  pause();
  EXPECT_FALSE(on());
  pause();  // once more changes nothing
  EXPECT_EQ(group_.sample(sampler_), traced(36, 100));
  EXPECT_FALSE(on());
  resume();
  EXPECT_TRUE(on());
  resume();
  group_.unit.trace(10);
  EXPECT_EQ(group_.sample(sampler_), traced(46, 110));
  EXPECT_TRUE(on());
  EXPECT_TRUE(group_.aux_records().empty());  // one session all the time
}

TEST_F(PtPauseTest, F1_StopEndsItAndResumingDoesNothingThen) {
  group_.start();
  group_.stop();
  pause();
  resume();
  EXPECT_FALSE(on());
  pause();
  group_.start();  // started, and paused
  EXPECT_FALSE(on());
  EXPECT_FALSE(group_.leader.hw.stopped);
  resume();
  EXPECT_TRUE(on());
}

TEST(PtPause, F1_StartPausedWaitsForTheFirstResume) {
  PtSetup setup;
  set_aux_action(setup.attr, kAuxStartPaused);
  PtGroup group(setup);
  Event& sampler = group.add_sampler(64);
  group.start();
  EXPECT_FALSE(group.unit.on());
  EXPECT_EQ(group.sample(sampler), Bytes(64));
  EXPECT_FALSE(group.unit.on());
  pause_aux(group.leader, false);
  EXPECT_TRUE(group.unit.on());
}

TEST_F(PtPauseTest, F1_AUnitThatHasStoppedItselfIsNotResumed) {
  group_.start();
  pause();
  group_.unit.set(PtRegister::kStatus, rtit_status::kStopped);
  group_.unit.log.clear();
  resume();
  for (const auto& access : group_.unit.log) EXPECT_FALSE(access.is_write);
}

TEST(PtPause, F1_InFullTraceInterruptsLeaveItPaused) {
  PtSetup setup;
  setup.overwrite = false;
  PtGroup group(setup);
  group.start();
  group.unit.trace(100);
  pause_aux(group.leader, true);
  pt_interrupt(group.pt);  // it was on its way
  EXPECT_FALSE(group.unit.on());
  EXPECT_EQ(group.aux_records(), (std::vector<AuxRecord>{{0, 100, 0}}));
  pause_aux(group.leader, false);
  EXPECT_TRUE(group.unit.on());
}

// At every register access of start, snapshot, interrupt and stop, before and after it, one pausing
// or resuming or both: in the end the unit is on exactly if it is started and not paused.
struct Step {
  bool pause, then_resume;
};

void run_at_every_access(bool overwrite, bool begins_paused, Step step) {
  for (const bool after : {false, true}) {
    bool reached = true;
    for (int at = 0; reached; ++at) {
      PtSetup setup;
      setup.overwrite = overwrite;
      if (begins_paused) set_aux_action(setup.attr, kAuxStartPaused);
      PtGroup group(setup);
      Event* const sampler = overwrite ? &group.add_sampler(64) : nullptr;
      int countdown = at;
      (after ? group.unit.after : group.unit.before) = [&](const ScriptedUnit::Access&) {
        if (countdown-- != 0) return;
        if (step.pause) pause_aux(group.leader, true);
        if (step.then_resume) pause_aux(group.leader, false);
      };
      const auto check = [&](const char* when) {
        const bool on = !group.leader.hw.stopped && !group.leader.hw.aux_paused;
        EXPECT_EQ(group.unit.on(), on) << when << ", access " << at << (after ? " after" : "");
        EXPECT_EQ(group.unit.faults, 0) << when;
      };
      group.start();
      check("started");
      group.unit.trace(100);
      if (sampler != nullptr) {
        group.overflow(*sampler);
      } else {
        pt_interrupt(group.pt);
      }
      check("in between");
      group.stop(0);
      check("stopped");
      group.start();
      check("started again");
      group.stop();
      check("stopped at last");
      reached = countdown < 0;
    }
  }
}

TEST(PtPause, F1_AtEveryRegisterAccess) {
  for (const bool overwrite : {true, false}) {
    for (const bool begins_paused : {true, false}) {
      for (const Step step : {Step{true, false}, Step{false, true}, Step{true, true}}) {
        run_at_every_access(overwrite, begins_paused, step);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace auxtrail::pmu
