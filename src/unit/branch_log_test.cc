// From the log to packets: what libipt reads of them.
#include "unit/branch_log.h"

#include <string>
#include <vector>

#include "unit/testing/log_fixture.h"
#include "unit/testing/no_windows.h"
#include "unit/trace_output.h"

extern "C" {
void shape_loop();
void shape_hot();
void shape_through();
void shape_through_target();
void shape_chain();
void shape_chain_middle();
void shape_chain_end();
}

namespace auxtrail::unit {

// As continuous.cc has it, but for when the next is due.
void write_psb(Thread& thread, uint64_t pc) {
  thread.returns.clear();
  thread.writer.psb_plus(pc, 1);
  thread.psb_due_bytes = SIZE_MAX;
}

void trace_on(Thread&, uint64_t) { FAIL() << "nothing is filtered"; }
void trace_stop(Thread&) { FAIL() << "nothing is filtered"; }

namespace {

class BranchLog : public LogFixture {
 protected:
  void drain_all() {
    write();
    thread_->writer.flush_tnt();
  }
};

TEST_F(BranchLog, ExitsBecomeTheOutcomesOnTheirWay) {
  const Block* const block = get(shape_loop);
  ASSERT_NE(block, nullptr);
  take(*block, 0);  // the loop ends at once
  take(*block, 2);  // after two rounds more
  drain_all();
  EXPECT_EQ(read(), "NTTN");
  EXPECT_EQ(thread_->window_branches, 4U);
  EXPECT_EQ(code_cache.passages()[block->first_exit].hits, 1U);
}

// What is learned of few logs stands for all.
TEST_F(BranchLog, ALaterLogCountsForItsLike) {
  const Block* const block = get(shape_loop);
  ASSERT_NE(block, nullptr);
  const uint32_t before = code_cache.passages()[block->first_exit + 1].hits;
  thread_->logs_learned_of = kLearnsAll;
  for (uint32_t i = 0; i < 3 * kLearnsEvery; ++i) {
    log_.clear();
    take(*block, 1);
    drain_all();
  }
  EXPECT_EQ(code_cache.passages()[block->first_exit + 1].hits, before + 3 * kLearnsEvery);
}

TEST_F(BranchLog, AReturnIsAnOutcomeIfTheCallIsKnown) {
  const Block* const block = get(shape_hot);
  ASSERT_NE(block, nullptr);
  const uint32_t end = block->exit_count - 1;
  ASSERT_EQ(code_cache.passages()[block->first_exit + end].kind, Passage::kReturn);
  const uint64_t returns_to[kMaxPendingCalls] = {0x1000};
  thread_->returns.push(returns_to, 1);
  take(*block, end, 0x1000);
  take(*block, end, 0x1000);
  drain_all();
  EXPECT_EQ(read(), "NTNI");  // je, the return; je, the return whose call nobody knows
}

// Of TIPs behind others in a superblock, the packets are made once: the same as the writer makes.
TEST_F(BranchLog, PacketsWithinSuperblocksAreTheWriters) {
  const auto follow_last_exit = [](void (*target)()) {
    const Block* const block = get(shape_chain);
    const uint32_t last = block->first_exit + block->exit_count - 1;
    code_cache.passages()[last].hits = kHotHits;
    code_cache.passage_details()[last].seen = reinterpret_cast<uint64_t>(target) | uint64_t{8}
                                                                                       << 48;
    code_cache.improve(last);
  };
  follow_last_exit(shape_chain_middle);
  follow_last_exit(shape_chain_end);
  const Block* const block = get(shape_chain);
  const uint32_t end = block->exit_count - 1;
  const Passage& passage = code_cache.passages()[block->first_exit + end];
  ASSERT_EQ(passage.via_count, 2);
  EXPECT_NE(code_cache.vias()[passage.first_via + 1].packet_bytes, 0);
  thread_->writer.tnt(1, 1);
  take(*block, end, 0x1000);
  drain_all();

  std::vector<uint8_t> expected(256);
  pt::PacketWriter writer(expected.data());
  writer.tnt(1, 1);
  writer.flush_tnt();
  writer.tip(reinterpret_cast<uint64_t>(&shape_chain_middle));
  writer.tnt(0, 1);
  writer.flush_tnt();
  writer.tip(reinterpret_cast<uint64_t>(&shape_chain_end));
  writer.tip(0x1000);
  expected.resize(writer.size_bytes());
  packets_.resize(thread_->writer.size_bytes());
  EXPECT_EQ(packets_, expected);
}

// However many TIPs superblocks hold, and if none of them ends with one.
TEST_F(BranchLog, APsbIsNotPutOffByTipsWithinSuperblocks) {
  const Block* block = get(shape_through);
  ASSERT_NE(block, nullptr);
  code_cache.passages()[block->first_exit].hits = kHotHits;
  code_cache.passage_details()[block->first_exit].seen =
      reinterpret_cast<uint64_t>(&shape_through_target) | uint64_t{8} << 48;
  code_cache.improve(block->first_exit);
  block = get(shape_through);
  const uint32_t end = block->exit_count - 1;
  Passage& passage = code_cache.passages()[block->first_exit + end];
  ASSERT_EQ(passage.via_count, 1);
  passage.kind = Passage::kDirect;  // the shape's own end is a return
  thread_->psb_due_bytes = 20;
  for (int i = 0; i < 20; ++i) take(*block, end);
  drain_all();
  // The first TIP takes seven bytes, the others three: the sixth reaches 20.
  EXPECT_EQ(read(), "IIIIIIPF" + std::string(14, 'I'));
}

}  // namespace
}  // namespace auxtrail::unit
