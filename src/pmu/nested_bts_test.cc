// A sample nested at every instruction of the BTS PMU's sampling path, start and stop (C6, C7).
#include <iostream>

#include "pmu/testing/bts_test_support.h"
#include "pmu/testing/instruction_gaps.h"
#include "pmu/testing/nested_paths.h"

namespace auxtrail::pmu {
namespace {

using namespace testing;  // NOLINT

constexpr uint32_t kAuxSample = 48;

struct Scene {
  explicit Scene(Path which) : path(which) {
    outer = &group.add_sampler(kAuxSample);
    inner = &group.add_sampler(kAuxSample);
  }
  void prepare() {
    group.stop();
    group.start();
    group.unit.branches(37);
    if (path == Path::kStart) group.stop();
    drain(group.reader);
  }
  static void run_level(void* context, int level) {
    auto& self = *static_cast<Scene*>(context);
    if (level != 0) return self.overflow(*self.inner, 2, self.inner_aux_bytes);
    switch (self.path) {
      case Path::kOverflow:
        return self.overflow(*self.outer, 1, self.outer_aux_bytes);
      case Path::kStart:
        return self.group.start();
      case Path::kStop:
        return self.group.stop();
      case Path::kStopWithoutUpdate:
        return self.group.stop(0);
      case Path::kPause:
      case Path::kResume:
        return;  // BTS cannot
    }
  }
  void overflow(Event& sampler, uint64_t ip, uint64_t& aux_bytes) {
    SampleData data = usual_data(ip);
    (void)event_output(sampler, data);
    aux_bytes = data.aux_size;
  }
  void check() {
    const bool started = path == Path::kOverflow || path == Path::kStart;
    EXPECT_EQ(group.unit.on(), started);
    EXPECT_EQ(group.leader.hw.stopped, !started);
    EXPECT_FALSE(group.area.in_sampling());
    EXPECT_EQ(group.control().data_head, group.ring.head());
    if (path == Path::kOverflow) {
      EXPECT_EQ(outer_aux_bytes, kAuxSample);
    }
    int samples = 0;
    for (const Bytes& record : drain(group.reader)) {
      if (header_of(record).type != PERF_RECORD_SAMPLE) continue;
      ++samples;
      const Bytes aux = aux_of(record);
      if (!aux.empty()) {
        EXPECT_EQ(aux, newest(kAuxSample, group.unit.total));
      }
    }
    EXPECT_EQ(samples, path == Path::kOverflow ? 2 : 1);
  }

  BtsGroup group{kIntelBtsSampling, 1, true};
  Path path;
  Event* outer;
  Event* inner;
  uint64_t outer_aux_bytes = 0, inner_aux_bytes = 0;
};

TEST(NestedBts, C6_C7_AtEveryInstruction) {
  AUXTRAIL_SKIP_WITHOUT_STEPPING();
  uint64_t points = 0, missed = 0, inside_snapshots = 0;
  for (const Path path : {Path::kOverflow, Path::kStart, Path::kStop, Path::kStopWithoutUpdate}) {
    Scene scene(path);
    InstructionGaps gaps(Scene::run_level, &scene);
    scene.prepare();
    const Addresses steps = gaps.record();
    for (size_t at = 1; at < steps.size() && !::testing::Test::HasFailure(); ++at) {
      scene.prepare();
      // The records wrap elsewhere in each run, so that some gaps are not reached.
      if (gaps.run(gap_of(steps, at), nullptr) != 1) {
        ++missed;
        drain(scene.group.reader);
        continue;
      }
      ++points;
      inside_snapshots += scene.inner_aux_bytes == 0;
      scene.check();
      if (::testing::Test::HasFailure()) ADD_FAILURE() << name_of(path) << ", gap " << at;
    }
  }
  std::cout << points << " injection points, " << inside_snapshots << " of them inside snapshots\n";
  EXPECT_GT(points, 1'500u);
  EXPECT_GT(inside_snapshots, 200u);
  EXPECT_LT(missed, points / 10);
}

}  // namespace
}  // namespace auxtrail::pmu
