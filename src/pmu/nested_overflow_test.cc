// "A nested overflow at every point of the sampling path leaves each record well formed" (C7, D3),
// literally: the trap flag steps through one overflow() instruction by instruction, and run k puts
// a second overflow() into the k-th gap.
#include <gtest/gtest.h>
#include <signal.h>
#include <ucontext.h>

#include "event/inline_copy.h"
#include "event/test_support.h"
#include "event/thread_context.h"
#include "pmu/intel_pt.h"

namespace auxtrail::pmu {
namespace {

using namespace event;
using namespace event::testing;

constexpr uint32_t kAuxSample = 32;  // `rep movsb` traps after each byte, so few of them
constexpr uint64_t kTrapFlag = 0x100;
constexpr uint32_t kOuterMark = 60;  // a record type that nothing else has

struct Stepper {
  static inline ThreadContext* context = nullptr;
  static inline uint64_t countdown = 0;  // traps until the inner overflow; 0 afterwards
  static inline uint64_t steps = 0;
  static inline OverflowResult inner;

  static void on_trap(int, siginfo_t*, void* raw) {
    ++steps;
    if (countdown == 0 || --countdown != 0) return;
    inner = context->overflow({2, 4700, kTid, 0, 0, 2, 0});
    static_cast<ucontext_t*>(raw)->uc_mcontext.gregs[REG_EFL] &= ~static_cast<int64_t>(kTrapFlag);
  }
};

[[gnu::noinline]] void set_trap_flag(bool on) {
  uint64_t flags = __builtin_ia32_readeflags_u64();
  flags = on ? flags | kTrapFlag : flags & ~kTrapFlag;
  __builtin_ia32_writeeflags_u64(flags);
}

// Runs `path` with an overflow in its gap `at` (0: nowhere).
template <class Path>
void step_through(ThreadContext& context, uint64_t at, Path&& path) {
  Stepper::context = &context;
  Stepper::countdown = at;
  Stepper::steps = 0;
  Stepper::inner = {};
  set_trap_flag(true);
  path();
  set_trap_flag(false);
}

struct Seen {
  uint64_t outer = 0, inner = 0, lost = 0, inner_aux_bytes = 0;
};

Seen take_apart(const std::vector<Bytes>& records, const Bytes& expected_aux) {
  Seen seen;
  for (const Bytes& record : records) {
    Fields fields(record);
    if (header_of(record).type == PERF_RECORD_LOST) {
      (void)fields.u64();
      seen.lost += fields.u64();
      continue;
    }
    if (header_of(record).type == kOuterMark) {
      ++seen.outer;
      continue;
    }
    EXPECT_EQ(header_of(record).type, static_cast<uint32_t>(PERF_RECORD_SAMPLE));
    EXPECT_EQ(fields.u64(), 101u);
    const uint64_t ip = fields.u64();
    (void)fields.bytes(24);
    EXPECT_EQ(fields.u64(), ip);
    const uint64_t aux_bytes = fields.u64();
    if (aux_bytes != 0) {
      EXPECT_EQ(fields.bytes(aux_bytes), expected_aux);
    }
    EXPECT_EQ(fields.left(), 0u);
    if (ip == 1) {
      ++seen.outer;
      EXPECT_EQ(aux_bytes, kAuxSample);
    } else {
      ++seen.inner;
      seen.inner_aux_bytes = aux_bytes;
    }
  }
  return seen;
}

class NestedOverflow : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef AUXTRAIL_VISIBLE_COPY
    GTEST_SKIP() << "sanitisers take over signals and make the path hundreds of times longer";
#endif
    ASSERT_EQ(context_.init({.leader = &leader_,
                             .sampler = &sampler_,
                             .leader_id = 11,
                             .sampler_id = 101,
                             .leader_pmu = &kIntelPt,
                             .leader_context = &pt_,
                             .tid = kTid,
                             .control = memory_.control(),
                             .data = memory_.data(),
                             .data_bytes = memory_.data_bytes(),
                             .aux = memory_.aux(),
                             .aux_bytes = memory_.aux_bytes()}),
              0);
    const Bytes packets = pattern(100);
    context_.aux().write(packets.data(), packets.size());
    expected_aux_ = Bytes(packets.end() - kAuxSample, packets.end());
    struct sigaction action {};
    action.sa_sigaction = Stepper::on_trap;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, &before_);
  }
  void TearDown() override {
    if (context_.active()) sigaction(SIGTRAP, &before_, nullptr);
  }

  // The number of gaps in `path`, with a LOST record due.
  template <class Path>
  uint64_t length_of(Path&& path) {
    context_.ring().count_lost(1);
    step_through(context_, 0, path);
    drain(reader_);
    return Stepper::steps;
  }
  // One run with the inner overflow in gap `at`; LOST is due, so that its path is stepped through
  // as well.
  template <class Path>
  Seen run(uint64_t at, Path&& path) {
    context_.ring().count_lost(1);
    step_through(context_, at, path);
    EXPECT_EQ(Stepper::countdown, 0u) << at;
    EXPECT_EQ(Stepper::inner.outcome, Outcome::kWritten) << at;
    EXPECT_EQ(memory_.control()->data_head, context_.ring().head()) << "unpublished at " << at;
    EXPECT_EQ(context_.ring().nesting(), 0u) << at;
    EXPECT_FALSE(context_.aux().in_sampling()) << at;
    const Seen seen = take_apart(drain(reader_), expected_aux_);
    EXPECT_EQ(seen.outer, 1u) << at;
    EXPECT_EQ(seen.inner, 1u) << at;
    EXPECT_EQ(seen.lost, 1u) << at;
    EXPECT_EQ(seen.inner_aux_bytes, Stepper::inner.aux_bytes) << at;
    return seen;
  }

  perf_event_attr leader_ = leader_attr();
  perf_event_attr sampler_ = sampler_attr(kUsualSampleType, kAuxSample);
  Memory memory_{4096, 4096};
  PtContext pt_;
  ThreadContext context_;
  RingReader reader_ = memory_.reader();
  Bytes expected_aux_;
  struct sigaction before_ {};
};

// The whole path, every eleventh gap (a single step costs up to 20 microseconds in a virtual
// machine, and the steps grow with the square of the gaps).
TEST_F(NestedOverflow, C7_AlongTheWholeSamplingPath) {
  OverflowResult outer;
  const auto path = [&] { outer = context_.overflow({1, 4700, kTid, 0, 0, 1, 0}); };
  const uint64_t length = length_of(path);
  ASSERT_GT(length, 100u);
  ASSERT_LT(length, 4000u);
  uint64_t without_aux = 0, with_aux = 0;
  for (uint64_t at = 1; at + 8 < length && !HasFailure(); at += 11) {
    (run(at, path).inner_aux_bytes == 0 ? without_aux : with_aux) += 1;
    EXPECT_EQ(outer.outcome, Outcome::kWritten) << at;
    EXPECT_EQ(outer.aux_bytes, kAuxSample) << at;
  }
  EXPECT_GT(without_aux, 3u);  // gaps inside the snapshot
  EXPECT_GT(with_aux, 20u);
}

// Reserving and publishing, every single gap.
TEST_F(NestedOverflow, D3_AtEveryInstructionOfReserveAndPublish) {
  SampleData data = usual_data(1);
  data.period = 1;
  bool reserved = false;
  const auto path = [&] {
    OutputHandle handle;
    reserved = output_begin(handle, sizeof(perf_event_header), data, context_.sampler());
    if (!reserved) return;
    handle.put(perf_event_header{kOuterMark, 0, sizeof(perf_event_header)});
    context_.ring().end(handle);
  };
  const uint64_t length = length_of(path);
  ASSERT_GT(length, 30u);
  for (uint64_t at = 1; at + 8 < length && !HasFailure(); ++at) {
    (void)run(at, path);
    EXPECT_TRUE(reserved) << at;
  }
}

}  // namespace
}  // namespace auxtrail::pmu
