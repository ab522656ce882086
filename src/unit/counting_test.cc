// What the log's entries count, where samples fall, and what the packets around them are. The
// expected instructions are those of testing/shapes.S, and libipt reads the packets.
#include "unit/counting.h"

#include <gmock/gmock.h>

#include <vector>

#include "unit/continuous.h"
#include "unit/testing/log_fixture.h"
#include "unit/testing/no_windows.h"
#include "unit/trace_output.h"

extern "C" {
void shape_loop();
void shape_call();
void shape_nested();
void shape_through();
void shape_through_target();
}

namespace auxtrail::unit {

namespace {

struct Taken {
  uint64_t pc;
  uint32_t samplers;
  uint64_t insns;
  uint64_t branches;
  bool operator==(const Taken&) const = default;
};
void PrintTo(const Taken& taken, std::ostream* out) {
  *out << std::hex << taken.pc << std::dec << '/' << taken.samplers << '/' << taken.insns << '/'
       << taken.branches;
}
std::vector<Taken> taken;

}  // namespace

// As continuous.cc has them, without a sample.
void write_psb(Thread& thread, uint64_t /*pc*/) { thread.psb_due_bytes = SIZE_MAX; }
void trace_on(Thread&, uint64_t) { FAIL() << "nothing is filtered"; }
void trace_stop(Thread&) { FAIL() << "nothing is filtered"; }
void continuous_counted_sample(Thread& thread, uint64_t pc, uint32_t samplers) {
  taken.push_back({pc, samplers, thread.counting.counts.insns, thread.counting.counts.branches});
  thread.writer.end(pc);
  thread.returns.clear();
  thread.writer.tip_pge(pc);
}

namespace {

using channel::Sampler;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class CountingTest : public LogFixture {
 protected:
  void SetUp() override {
    LogFixture::SetUp();
    window_config.pid = 1;
    taken.clear();
  }

  // Periods of 0 are no samplers.
  void count(uint64_t insns, uint64_t branches) {
    session.config.sampler_count = 0;
    if (insns != 0) add_sampler(Sampler::kInstructions, insns);
    if (branches != 0) add_sampler(Sampler::kBranches, branches);
    start_counting(*thread_, 1);
  }
  static void add_sampler(Sampler::Kind kind, uint64_t period) {
    Sampler& sampler = session.config.samplers[session.config.sampler_count++];
    sampler = {};
    sampler.kind = kind;
    sampler.attr.sample_period = period;
  }
  void drain_all() {
    tls_block.log = start_draining();
    empty_log(*thread_);
    EXPECT_EQ(thread_->log_start, tls_block.log);
  }
  [[nodiscard]] const Counts& counts() const { return thread_->counting.counts; }
};

// dec (3 bytes), jnz (2).
TEST_F(CountingTest, EntriesCountAllInstructionsAndBranches) {
  const Block* const block = get(shape_loop);
  ASSERT_NE(block, nullptr);
  count(1000, 0);
  take(*block, 0);  // the loop ends at once
  take(*block, 2);  // after two rounds more
  drain_all();
  EXPECT_EQ(counts().insns, 8U);
  EXPECT_EQ(counts().branches, 4U);
  EXPECT_THAT(taken, IsEmpty());
  EXPECT_EQ(read(), "NTTN");
}

TEST_F(CountingTest, SamplesFallBehindTheLastInstructionOfEachPeriod) {
  const Block* const block = get(shape_loop);
  ASSERT_NE(block, nullptr);
  count(3, 0);
  take(*block, 3);  // four rounds
  take(*block, 0);  // another one
  drain_all();
  EXPECT_THAT(taken, ElementsAre(Taken{block->pc + 3, 1, 3, 1}, Taken{block->pc, 1, 6, 3},
                                 Taken{block->pc + 3, 1, 9, 4}));
  EXPECT_EQ(counts().insns, 10U);
  EXPECT_EQ(read(), "TFdETTFdENFdEN");
}

TEST_F(CountingTest, TwoSamplersMayOverflowAtOnce) {
  const Block* const block = get(shape_loop);
  ASSERT_NE(block, nullptr);
  count(4, 1);
  take(*block, 2);
  drain_all();
  EXPECT_THAT(taken, ElementsAre(Taken{block->pc, 2, 2, 1}, Taken{block->pc, 3, 4, 2},
                                 Taken{block->pc + 5, 2, 6, 3}));
  EXPECT_EQ(read(), "TFdETFdENFdE");
}

// The period goes on from log to log.
TEST_F(CountingTest, APeriodIsCarriedOver) {
  const Block* const block = get(shape_loop);
  ASSERT_NE(block, nullptr);
  count(0, 5);
  for (int i = 0; i < 12; ++i) {
    log_.clear();
    take(*block, 0);
    drain_all();
  }
  EXPECT_THAT(taken, ElementsAre(Taken{block->pc + 5, 1, 10, 5}, Taken{block->pc + 5, 1, 20, 10}));
  EXPECT_EQ(sampled_period(*thread_, 0), 5U);
}

// call (5), inc (3), jmp (2), ret (1), back to the ret at 5: direct jumps and calls count, too.
TEST_F(CountingTest, DirectBranchesCountAndReturnsBehindASampleAreTargets) {
  const Block* const block = get(shape_call);
  ASSERT_NE(block, nullptr);
  ASSERT_EQ(block->exit_count, 2);  // the miss of the inner return, the outer one
  count(0, 1);
  take(*block, 1, 0x1000);
  drain_all();
  const uint64_t leaf = block->pc + 6;
  EXPECT_THAT(taken, ElementsAre(Taken{leaf, 1, 1, 1}, Taken{leaf + 7, 1, 3, 2},
                                 Taken{block->pc + 5, 1, 4, 3}, Taken{0x1000, 1, 5, 4}));
  // A decoder that begins at the callee knows no call.
  EXPECT_EQ(read(), "FdEFdEIFdEIFdE");
}

TEST_F(CountingTest, AReturnIsAnOutcomeIfItsCallIsBehindTheSample) {
  const Block* const block = get(shape_nested);
  ASSERT_NE(block, nullptr);
  ASSERT_EQ(block->exit_count, 4);
  count(2, 0);  // inc, call | call
  take(*block, 3, 0x1000);
  session.config.samplers[0].attr.sample_period = 1000;
  thread_->counting.each[0].period = 1000;
  drain_all();
  EXPECT_THAT(taken, ElementsAre(Taken{block->pc + 9, 1, 2, 1}));
  EXPECT_EQ(read(),
            "FdENTII");  // je, the inner return, that of the call before the sample, the last
}

// jmp (2 bytes), inc (3), ret.
TEST_F(CountingTest, FollowedIndirectBranchesAreCountedOneByOne) {
  const Block* block = get(shape_through);
  ASSERT_NE(block, nullptr);
  const auto target = reinterpret_cast<uint64_t>(&shape_through_target);
  code_cache.passages()[block->first_exit].hits = kHotHits;
  code_cache.passage_details()[block->first_exit].seen = target | uint64_t{8} << 48;
  code_cache.improve(block->first_exit);
  block = get(shape_through);
  ASSERT_EQ(block->exit_count, 2);
  count(1, 0);
  take(*block, 1, 0x1000);
  drain_all();
  EXPECT_THAT(taken, ElementsAre(Taken{target, 1, 1, 1}, Taken{target + 3, 1, 2, 1},
                                 Taken{0x1000, 1, 3, 2}));
  EXPECT_EQ(read(), "IFdEFdEIFdE");
}

TEST_F(CountingTest, AWayThatEndsInTheMiddleCounts) {
  const Block* const block = get(shape_loop);
  ASSERT_NE(block, nullptr);
  count(4, 0);
  const InsnMark* const marks = code_cache.marks_of(*block);
  finish_way(*thread_, code_cache.way_to(*block, marks[3]));  // before the second jnz
  EXPECT_EQ(counts().insns, 3U);
  EXPECT_EQ(counts().branches, 1U);
  EXPECT_THAT(taken, IsEmpty());
  finish_way(*thread_, code_cache.way_to(*block, marks[3]));
  EXPECT_THAT(taken, ElementsAre(Taken{block->pc + 3, 1, 4, 1}));
  EXPECT_EQ(counts().insns, 6U);
  finish_way(*thread_, kEmptyWay);
  EXPECT_EQ(counts().insns, 6U);
  EXPECT_EQ(read(), "TFdET");
}

TEST_F(CountingTest, ASystemCallIsOneInstruction) {
  count(2, 0);
  count_system_call(*thread_);
  take_overflow(*thread_, 0x1000);
  uncount_system_call(*thread_);  // it was interrupted before it was made
  count_system_call(*thread_);
  take_overflow(*thread_, 0x2000);
  count_system_call(*thread_);
  take_overflow(*thread_, 0x3000);
  EXPECT_THAT(taken, ElementsAre(Taken{0x3000, 1, 2, 0}));
}

TEST_F(CountingTest, WithoutInheritanceOnlyTheFirstThreadCounts) {
  count(1, 0);
  EXPECT_TRUE(thread_->counting.active);
  start_counting(*thread_, 2);
  EXPECT_FALSE(thread_->counting.active);
  session.config.samplers[0].attr.inherit = 1;
  start_counting(*thread_, 2);
  EXPECT_TRUE(thread_->counting.active);
}

// However often it overflows at once, a period is measured over some time.
TEST_F(CountingTest, AFrequencyAdaptsThePeriod) {
  const Block* const block = get(shape_loop);
  ASSERT_NE(block, nullptr);
  count(100, 0);
  session.config.samplers[0].attr.freq = 1;
  window_config.periods[0] = 1;  // a nanosecond: any time that passes is longer
  start_counting(*thread_, 1);
  Counting::Each& each = thread_->counting.each[0];
  const uint64_t first = each.period;
  thread_->counting.counts.insns = first;
  take_overflow(*thread_, 0x1000);
  EXPECT_LT(each.period, first);
  EXPECT_EQ(sampled_period(*thread_, 0), first);
  EXPECT_EQ(each.next, first + each.period);
  each.interval_ns = uint64_t{1} << 60;  // too short a time has passed
  const uint64_t second = each.period;
  thread_->counting.counts.insns = each.next;
  take_overflow(*thread_, 0x1000);
  EXPECT_EQ(each.period, second);
}

}  // namespace
}  // namespace auxtrail::unit
