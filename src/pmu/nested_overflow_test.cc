// "A nested overflow at every point of the sampling path leaves each record well formed" (C6, C7,
// D3, F1), by exhaustion: the trap flag steps through a path instruction by instruction, and run k
// puts an overflow into the k-th gap; with two levels, that overflow is stepped through as well,
// and has another overflow in one of its gaps.
//
// Paths: a whole overflow (prepare, reserve, snapshot, copy, output, publish), start, stop, pause
// and resume. Units: one without registers (windowed, as the software unit), a single-range one,
// one with output tables. What is nested: an overflow that samples, one that pauses the leader too,
// one that resumes it. After each run
//  - every record is well formed and was published, and holds what its sample promised;
//  - the AUX bytes of every sample are the newest of the moment, or none (inside a snapshot);
//  - the guard flags are clear, and the unit is on exactly if it is started and not paused;
//  - the configuration was never written while TraceEn.
#include <gtest/gtest.h>

#include <iostream>
#include <map>

#include "event/aux_action.h"
#include "event/overflow.h"
#include "pmu/testing/instruction_gaps.h"
#include "pmu/testing/nested_paths.h"
#include "pmu/testing/pt_test_support.h"

namespace auxtrail::pmu {
namespace {

using namespace testing;  // NOLINT

constexpr uint32_t kAuxSample = 16;  // `rep movsb` traps after each byte, so few of them
constexpr int64_t kTraced = 100;     // bytes in the area before each run

enum class Inner { kSample, kPause, kResume };
enum class Unit { kWindowed, kSingleRange, kTables };

const char* name_of(Unit unit) {
  return unit == Unit::kWindowed ? "windowed" : unit == Unit::kTables ? "tables" : "single range";
}
const char* name_of(Inner inner) {
  constexpr const char* kNames[] = {"sample", "pause", "resume"};
  return kNames[static_cast<int>(inner)];
}

// The leader, a sampler for the outermost overflow and one for those nested in it.
struct Scene {
  explicit Scene(Unit which, Inner inner) : group(setup_of(which)), unit_kind(which) {
    group.unit.keep_log = false;
    if (which == Unit::kWindowed) {
      group.pt.unit = {};
      group.pt.windowed = true;
      EXPECT_EQ(kIntelPt.setup_aux(group.leader, group.area, true), 0);
    }
    outer_sampler = &group.add_sampler(kAuxSample, 101);
    inner_sampler = &group.add_sampler(kAuxSample, 102);
    if (inner == Inner::kPause) set_aux_action(inner_sampler->attr, kAuxPause);
    if (inner == Inner::kResume) set_aux_action(inner_sampler->attr, kAuxResume);
  }
  static PtSetup setup_of(Unit which) {
    PtSetup setup;
    setup.aux_bytes = which == Unit::kSingleRange ? 4096 : 4 * 4096;
    return setup;
  }

  // To where the path begins, with bytes in the area: started unless the path is a start.
  void prepare(Path path) {
    group.leader.hw.aux_paused = false;
    group.stop();
    group.start();
    trace(kTraced);
    if (path == Path::kStart) group.stop();
    if (path == Path::kResume) pause_aux(group.leader, true);
    expected_aux = newest();
    drain(group.reader);
    if (group.ring.lost_pending() == 0)
      group.ring.count_lost(1);  // so that the path of LOST records is stepped through, too
  }
  void run(Path path) {
    switch (path) {
      case Path::kOverflow:
        return overflow(*outer_sampler, 1, outer_aux_bytes);
      case Path::kStart:
        return group.start();
      case Path::kStop:
        return group.stop();
      case Path::kStopWithoutUpdate:
        return group.stop(0);
      case Path::kPause:
        return pause_aux(group.leader, true);
      case Path::kResume:
        return pause_aux(group.leader, false);
    }
  }
  void overflow_inside(uint64_t level) { overflow(*inner_sampler, level + 1, inner_aux_bytes); }
  void overflow(Event& sampler, uint64_t mark, uint64_t& aux_bytes) {
    SampleData data = usual_data(mark);
    data.period = mark;
    outcome = event_overflow(sampler, data);
    aux_bytes = data.aux_size;
  }
  void trace(uint64_t count) {
    if (unit_kind != Unit::kWindowed) return group.unit.trace(count);
    group.pt.begin_window();
    for (uint64_t i = 0; i < count; ++i) {
      const std::byte value = pt_pattern(written++);
      group.area.write(&value, 1);
    }
  }
  Bytes newest() const {
    const uint64_t total = unit_kind == Unit::kWindowed ? written : group.unit.total;
    return traced(static_cast<int64_t>(total) - int64_t{kAuxSample}, static_cast<int64_t>(total));
  }

  PtGroup group;
  Unit unit_kind;
  Event* outer_sampler;
  Event* inner_sampler;
  Bytes expected_aux;
  uint64_t written = 0;  // by the unit without registers
  Outcome outcome = Outcome::kInactive;
  uint64_t outer_aux_bytes = 0, inner_aux_bytes = 0;
};

class NestedOverflow : public ::testing::Test {
 protected:
  void SetUp() override { AUXTRAIL_SKIP_WITHOUT_STEPPING(); }

  static void check(Scene& scene, Path path, uint64_t nested) {
    PtGroup& group = scene.group;
    EXPECT_EQ(scene.outcome, Outcome::kWritten);
    EXPECT_EQ(group.control().data_head, group.ring.head()) << "unpublished";
    EXPECT_EQ(group.ring.nesting(), 0u);
    EXPECT_FALSE(group.area.in_sampling());
    EXPECT_TRUE(AuxPauseGuard(group.area).entered());
    check_unit(scene, path);
    uint64_t outer = 0, inner = 0, lost = 0;
    for (const Bytes& record : drain(group.reader)) {
      const uint32_t type = header_of(record).type;
      if (type == PERF_RECORD_LOST) {
        Fields fields(record);
        (void)fields.u64();
        lost += fields.u64();
      } else if (type == PERF_RECORD_SAMPLE) {
        check_sample(scene, record) == 1 ? ++outer : ++inner;
      } else {
        EXPECT_EQ(type, static_cast<uint32_t>(PERF_RECORD_AUX));
      }
    }
    EXPECT_EQ(outer, path == Path::kOverflow ? 1u : 0u);
    EXPECT_EQ(inner, nested);
    EXPECT_EQ(lost, 1u);
    if (path == Path::kOverflow) {
      EXPECT_EQ(scene.outer_aux_bytes, kAuxSample);
    }
  }

  static void check_unit(const Scene& scene, Path path) {
    if (scene.unit_kind == Unit::kWindowed) return;
    const PtGroup& group = scene.group;
    const bool stopped = path == Path::kStop || path == Path::kStopWithoutUpdate;
    EXPECT_EQ(group.leader.hw.stopped, stopped);
    EXPECT_EQ(group.unit.on(), !stopped && !group.leader.hw.aux_paused);
    EXPECT_EQ((group.pt.ctl.load() & rtit_ctl::kTraceEn) != 0, group.unit.on());
    EXPECT_EQ(group.pt.in_hand.load(), stopped);
    EXPECT_EQ(group.unit.faults, 0);
  }

  // Its mark: 1 for the outermost.
  static uint64_t check_sample(const Scene& scene, const Bytes& record) {
    Fields fields(record);
    const uint64_t id = fields.u64();
    const uint64_t mark = fields.u64();
    EXPECT_EQ(id, mark == 1 ? 101u : 102u);
    (void)fields.bytes(24);
    EXPECT_EQ(fields.u64(), mark);
    const uint64_t aux_bytes = fields.u64();
    EXPECT_TRUE(aux_bytes == 0 || aux_bytes == kAuxSample) << aux_bytes;
    if (aux_bytes == kAuxSample) {
      EXPECT_EQ(fields.bytes(aux_bytes), scene.expected_aux);
    }
    EXPECT_EQ(fields.left(), 0u);
    return mark;
  }

  // One path of one unit with one kind of nested overflow.
  class Runs {
   public:
    Runs(Unit unit, Path path, Inner inner)
        : scene_(unit, inner),
          path_(path),
          what_(std::string(name_of(unit)) + ", " + name_of(path) + ", " + name_of(inner)) {
      scene_.prepare(path_);
      steps_ = gaps_.record();
      drain(scene_.group.reader);
    }

    // Every `stride`-th gap of the path.
    Count one_level(uint64_t stride) {
      Count count;
      for (size_t at = 1; at < steps_.size() && !HasFailure(); at += stride) {
        EXPECT_EQ(run(at, nullptr), 1) << "not reached";
        check(scene_, path_, 1);
        tell(count, at, 0);
      }
      return count;
    }

    // Every `stride`-th gap of the path with every `inner_stride`-th of the overflow in it; begun
    // elsewhere each time, so that in the end no inner gap is left out.
    Count two_levels(uint64_t stride, uint64_t inner_stride) {
      Count count;
      for (size_t at = 1; at < steps_.size() && !HasFailure(); at += stride) {
        const Addresses& inner_steps = inner_path(at);
        for (size_t in = 1 + at % inner_stride; in < inner_steps.size(); in += inner_stride) {
          const Gap inner = gap_of(inner_steps, in);
          const int reached = run(at, &inner);
          check(scene_, path_, static_cast<uint64_t>(reached));
          if (reached == 2) tell(count, at, in);
          if (HasFailure()) break;
        }
      }
      return count;
    }

   private:
    int run(size_t at, const Gap* inner) {
      scene_.prepare(path_);
      scene_.inner_aux_bytes = 0;
      return gaps_.run(gap_of(steps_, at), inner);
    }

    // The instructions of the overflow in gap `at`: they differ by whether it has AUX bytes.
    const Addresses& inner_path(size_t at) {
      run(at, nullptr);
      drain(scene_.group.reader);
      const bool without_aux = scene_.inner_aux_bytes == 0;
      Addresses& steps = inner_steps_[without_aux];
      if (!steps.empty()) return steps;
      scene_.prepare(path_);
      steps = gaps_.record_inside(gap_of(steps_, at));
      drain(scene_.group.reader);
      return steps;
    }

    static void run_level(void* context, int level) {
      auto& self = *static_cast<Runs*>(context);
      level == 0 ? self.scene_.run(self.path_)
                 : self.scene_.overflow_inside(static_cast<uint64_t>(level));
    }

    void tell(Count& count, size_t at, size_t in) {
      ++count.points;
      count.inside_snapshots += scene_.inner_aux_bytes == 0;
      if (HasFailure()) ADD_FAILURE() << what_ << ", gap " << at << ", inner gap " << in;
    }

    Scene scene_;
    Path path_;
    std::string what_;
    InstructionGaps gaps_{run_level, this};
    Addresses steps_;
    std::map<bool, Addresses> inner_steps_;
  };
};

constexpr Path kPaths[] = {Path::kOverflow,          Path::kStart, Path::kStop,
                           Path::kStopWithoutUpdate, Path::kPause, Path::kResume};
constexpr Unit kUnits[] = {Unit::kWindowed, Unit::kSingleRange, Unit::kTables};
constexpr Inner kInners[] = {Inner::kSample, Inner::kPause, Inner::kResume};

TEST_F(NestedOverflow, C6_C7_D3_F1_AtEveryInstruction) {
  Count all;
  for (const Unit unit : kUnits) {
    for (const Path path : kPaths) {
      for (const Inner inner : kInners) all += Runs(unit, path, inner).one_level(1);
      if (HasFailure()) return;
    }
  }
  std::cout << all.points << " injection points, " << all.inside_snapshots
            << " of them inside snapshots\n";
  EXPECT_GT(all.points, 25'000u);
  EXPECT_GT(all.inside_snapshots, 2'000u);
}

// Two levels: a part of all pairs; with AUXTRAIL_EVERY_GAP in the environment all of them, which
// takes hours.
TEST_F(NestedOverflow, C6_C7_D3_F1_TwoLevels) {
  Count all;
  for (const Unit unit : kUnits) {
    for (const Path path : kPaths) {
      for (const Inner inner : kInners) {
        const uint64_t stride = every_gap() ? 1 : path == Path::kOverflow ? 83 : 23;
        all += Runs(unit, path, inner).two_levels(stride, every_gap() ? 1 : 47);
      }
      if (HasFailure()) return;
    }
  }
  std::cout << all.points << " pairs of injection points, " << all.inside_snapshots
            << " with the first inside a snapshot\n";
  EXPECT_GT(all.points, 20'000u);
  EXPECT_GT(all.inside_snapshots, 1'000u);
}

}  // namespace
}  // namespace auxtrail::pmu
