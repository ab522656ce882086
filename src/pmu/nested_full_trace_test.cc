// Full trace has no samples; there it is the unit's own interrupt that comes anywhere, a pause or a
// resume, and one in the other. Every byte that was traced is told of once, and the unit is on as
// it should be.
#include <gtest/gtest.h>

#include <iostream>

#include "event/overflow.h"
#include "pmu/testing/instruction_gaps.h"
#include "pmu/testing/nested_paths.h"
#include "pmu/testing/pt_test_support.h"

namespace auxtrail::pmu {
namespace {

using namespace testing;  // NOLINT

constexpr uint64_t kTraced = 100;  // bytes in the session before each run

class NestedInterrupt : public ::testing::Test {
 protected:
  void SetUp() override { AUXTRAIL_SKIP_WITHOUT_STEPPING(); }

  enum class Kind { kNone, kInterrupt, kPause, kResume };
  struct Nesting {
    Kind first, second;  // the second interrupts the first
  };

  class FullTrace {
   public:
    FullTrace(Path path, Nesting nesting) : group_(setup()), path_(path), nesting_(nesting) {
      group_.unit.keep_log = false;
      prepare();
      steps_ = gaps_.record();
      check();
    }

    // Every `stride`-th gap; of the second kind, every `inner_stride`-th in that.
    Count run(size_t stride, size_t inner_stride) {
      Count count;
      for (size_t at = 1; at < steps_.size() && !HasFailure(); at += stride) {
        if (nesting_.second == Kind::kNone) {
          run_one(count, at, nullptr, 0);
          continue;
        }
        prepare();
        const Addresses inner_steps = gaps_.record_inside(gap_of(steps_, at));
        check();
        for (size_t in = 1 + at % inner_stride; in < inner_steps.size(); in += inner_stride) {
          const Gap inner = gap_of(inner_steps, in);
          run_one(count, at, &inner, in);
        }
      }
      return count;
    }

   private:
    static PtSetup setup() {
      PtSetup setup;
      setup.overwrite = false;
      return setup;
    }
    void run_one(Count& count, size_t at, const Gap* inner, size_t in) {
      prepare();
      // (Not all gaps are reached in every run: the rings wrap elsewhere.)
      count.points += gaps_.run(gap_of(steps_, at), inner) == (inner != nullptr ? 2 : 1);
      check();
      if (HasFailure()) {
        ADD_FAILURE() << name_of(path_) << ", kinds " << static_cast<int>(nesting_.first) << " and "
                      << static_cast<int>(nesting_.second) << ", gaps " << at << " and " << in;
      }
    }
    void prepare() {
      group_.leader.hw.aux_paused = false;
      group_.stop();
      follow();
      group_.start();
      group_.unit.trace(kTraced);
      if (path_ == Path::kStart) group_.stop();
      if (path_ == Path::kResume) pause_aux(group_.leader, true);
    }
    static void run_level(void* context, int level) {
      auto& self = *static_cast<FullTrace*>(context);
      if (level == 0) return self.run_path();
      switch (level == 1 ? self.nesting_.first : self.nesting_.second) {
        case Kind::kNone:
          return;
        case Kind::kInterrupt:
          return pt_interrupt(self.group_.pt);
        case Kind::kPause:
          return pause_aux(self.group_.leader, true);
        case Kind::kResume:
          return pause_aux(self.group_.leader, false);
      }
    }
    void run_path() {
      if (path_ == Path::kStart) return group_.start();
      if (path_ == Path::kStop) return group_.stop();
      if (path_ == Path::kStopWithoutUpdate) return group_.stop(0);
      pause_aux(group_.leader, path_ == Path::kPause);
    }
    void check() {
      const bool stopped = path_ == Path::kStop || path_ == Path::kStopWithoutUpdate;
      EXPECT_EQ(group_.leader.hw.stopped, stopped);
      EXPECT_EQ(group_.unit.on(), !stopped && !group_.leader.hw.aux_paused);
      EXPECT_TRUE(AuxPauseGuard(group_.area).entered());
      EXPECT_EQ(group_.unit.faults, 0);
      group_.unit.trace(3);
      group_.leader.hw.aux_paused = false;
      group_.stop();
      follow();
      EXPECT_EQ(told_, group_.unit.total);
    }
    void follow() {
      for (const AuxRecord& record : group_.aux_records()) {
        EXPECT_EQ(record.offset, told_);
        EXPECT_EQ(record.flags, 0u);
        told_ += record.size;
      }
      group_.control().aux_tail = told_;
    }

    PtGroup group_;
    Path path_;
    Nesting nesting_;
    uint64_t told_ = 0;
    InstructionGaps gaps_{run_level, this};
    Addresses steps_;
  };

  static constexpr Path kFullTracePaths[] = {Path::kStart, Path::kStop, Path::kStopWithoutUpdate,
                                             Path::kPause, Path::kResume};
};

TEST_F(NestedInterrupt, E2_F1_AtEveryInstructionOfFullTrace) {
  Count all;
  for (const Path path : kFullTracePaths) {
    for (const Kind kind : {Kind::kInterrupt, Kind::kPause, Kind::kResume}) {
      all += FullTrace(path, {kind, Kind::kNone}).run(1, 1);
    }
  }
  std::cout << all.points << " injection points in full trace\n";
  EXPECT_GT(all.points, 6'000u);
}

TEST_F(NestedInterrupt, E2_F1_TwoLevelsOfFullTrace) {
  Count all;
  for (const Path path : kFullTracePaths) {
    for (const Nesting nesting :
         {Nesting{Kind::kInterrupt, Kind::kPause}, Nesting{Kind::kInterrupt, Kind::kResume},
          Nesting{Kind::kPause, Kind::kInterrupt}, Nesting{Kind::kResume, Kind::kInterrupt}}) {
      all += FullTrace(path, nesting).run(every_gap() ? 1 : 23, every_gap() ? 1 : 7);
    }
  }
  std::cout << all.points << " pairs of injection points in full trace\n";
  EXPECT_GT(all.points, 3'000u);
}

}  // namespace
}  // namespace auxtrail::pmu
