// Which superblocks are made anew, and how; and what is known of exits.
#include <gmock/gmock.h>

#include <vector>

#include "unit/code_cache.h"
#include "unit/testing/no_windows.h"
#include "unit/translator.h"

extern "C" {
void shape_hot();
void shape_cold();
void shape_through();
void shape_through_target();
void shape_nested();
void shape_reads_pc();
void shape_dispatch_one();
void shape_dispatch_other();
void shape_endlessly_straight();
}

namespace auxtrail::unit {

namespace {

using channel::Reason;
using ::testing::ElementsAre;

uint64_t address(void (*function)()) { return reinterpret_cast<uint64_t>(function); }

class HotCode : public ::testing::Test {
 protected:
  void SetUp() override {
    session.config.continuous = 1;
    ASSERT_TRUE(code_cache.ensure_ready());
  }

  static Block* get(void (*function)()) {
    Reason why;
    return code_cache.get(address(function), true, &why);
  }
  static Passage& passage(const Block& block, uint32_t exit) {
    return code_cache.passages()[block.first_exit + exit];
  }
  static PassageDetails& details(const Block& block, uint32_t exit) {
    return code_cache.passage_details()[block.first_exit + exit];
  }
  // Offsets of the superblock's instructions from its first.
  static std::vector<uint64_t> steps(const Block& block) {
    std::vector<uint64_t> result;
    const InsnMark* last = nullptr;
    for (uint32_t i = 0; i < block.body_bytes; ++i) {
      const Block* found = nullptr;
      const InsnMark* mark = nullptr;
      const auto at = reinterpret_cast<uint64_t>(block.code) + i;
      if (!code_cache.locate(at, &found, &mark) || mark == last) continue;
      last = mark;
      result.push_back(code_cache.pc_of(block, *mark) - block.pc);
    }
    return result;
  }
  // Where the first instruction of `block` jumps; null if it does not.
  static const uint8_t* redirected_to(const Block& block) {
    if (block.code[0] != 0xe9) return nullptr;
    int32_t distance;
    __builtin_memcpy(&distance, block.code + 1, sizeof distance);
    return block.code + 5 + distance;
  }
};

// test (3 bytes), je (2), inc (3), ret (1), dec (3), ret.
TEST_F(HotCode, AConditionalThatMostlyLeavesIsFollowedTheOtherWay) {
  Block* const old = get(shape_hot);
  ASSERT_NE(old, nullptr);
  EXPECT_THAT(steps(*old), ElementsAre(0, 3, 5, 8));
  ASSERT_EQ(old->exit_count, 2);
  passage(*old, 0).hits = kHotHits;
  passage(*old, 1).hits = kHotHits - 1;
  code_cache.improve(old->first_exit);
  Block* const fresh = get(shape_hot);
  ASSERT_NE(fresh, old);
  EXPECT_EQ(redirected_to(*old), fresh->code);
  EXPECT_EQ(redirected_to(*fresh), nullptr);
  EXPECT_THAT(steps(*fresh), ElementsAre(0, 3, 9, 12));
  EXPECT_EQ(passage(*fresh, 0).outcomes, 0);  // what leaves now is not taken
  EXPECT_EQ(passage(*fresh, 1).outcomes, 1);
}

TEST_F(HotCode, AConditionalThatMostlyStaysIsLeftAlone) {
  Block* const block = get(shape_cold);
  ASSERT_NE(block, nullptr);
  passage(*block, 0).hits = kHotHits;
  passage(*block, 1).hits = kHotHits + 1;
  code_cache.improve(block->first_exit);
  EXPECT_EQ(get(shape_cold), block);
  EXPECT_EQ(redirected_to(*block), nullptr);
}

// jmp (2 bytes), inc (3), ret.
TEST_F(HotCode, ASteadyIndirectJumpIsFollowedUntilItLeadsElsewhere) {
  Block* const old = get(shape_through);
  ASSERT_NE(old, nullptr);
  EXPECT_THAT(steps(*old), ElementsAre(0));
  const uint64_t target = address(shape_through_target);
  passage(*old, 0).hits = kHotHits;
  details(*old, 0).seen = target | uint64_t{7} << 48;  // not yet often enough in a row
  code_cache.improve(old->first_exit);
  EXPECT_EQ(get(shape_through), old);

  details(*old, 0).seen = target | uint64_t{8} << 48;
  code_cache.improve(old->first_exit);
  Block* const followed = get(shape_through);
  ASSERT_NE(followed, old);
  EXPECT_THAT(steps(*followed), ElementsAre(0, 2, 5));
  ASSERT_EQ(followed->exit_count, 2);
  EXPECT_EQ(passage(*followed, 0).kind, Passage::kIndirect);  // the miss
  EXPECT_EQ(passage(*followed, 0).via_count, 0);
  EXPECT_EQ(passage(*followed, 1).kind, Passage::kReturn);
  ASSERT_EQ(passage(*followed, 1).via_count, 1);
  const Via& via = code_cache.vias()[passage(*followed, 1).first_via];
  EXPECT_EQ(via.target, target);
  EXPECT_FALSE(via.is_return);

  passage(*followed, 0).hits = kHotHits;
  code_cache.improve(followed->first_exit);
  Block* const again = get(shape_through);
  ASSERT_NE(again, followed);
  EXPECT_THAT(steps(*again), ElementsAre(0));
}

// inc (3), jmp (2), dec (3), jmp (2): one jump with two targets, of which each superblock knows
// one.
TEST_F(HotCode, AnIndirectJumpIsFollowedWhereItLeadsFromThisSuperblock) {
  const auto learn = [](void (*function)(), void (*target)()) {
    const Block* const old = get(function);
    passage(*old, 0).hits = kHotHits;
    details(*old, 0).seen = address(target) | uint64_t{8} << 48;
    code_cache.improve(old->first_exit);
    const Block* const fresh = get(function);
    return code_cache.vias()[fresh->first_via].target;
  };
  EXPECT_EQ(learn(shape_dispatch_one, shape_dispatch_other), address(shape_dispatch_other));
  EXPECT_EQ(learn(shape_dispatch_other, shape_dispatch_one), address(shape_dispatch_one));
}

// One that ends because it is long enough goes on for longer when it is hot, once.
TEST_F(HotCode, AHotSuperblockIsLonger) {
  const Block* const old = get(shape_endlessly_straight);
  EXPECT_EQ(old->mark_count, Translator::kContinuous.insns);
  passage(*old, 0).hits = kHotHits - 1;
  code_cache.improve(old->first_exit);
  EXPECT_EQ(get(shape_endlessly_straight), old);
  passage(*old, 0).hits = kHotHits;
  code_cache.improve(old->first_exit);
  const Block* const fresh = get(shape_endlessly_straight);
  EXPECT_EQ(fresh->mark_count, Translator::kHot.insns);
  passage(*fresh, 0).hits = kHotHits;
  code_cache.improve(fresh->first_exit);
  EXPECT_EQ(get(shape_endlessly_straight), fresh);
}

// inc (3), call (5), ret (1), call (5), ret (1), test (3), je (2), ret (1), ret.
TEST_F(HotCode, ExitsKnowTheCallsOnTheirWay) {
  Block* const block = get(shape_nested);
  ASSERT_NE(block, nullptr);
  // je; the misses of three returns, the last of which is no pair: the way out.
  ASSERT_EQ(block->exit_count, 4);
  EXPECT_TRUE(passage(*block, 0).is_side_exit);
  EXPECT_EQ(passage(*block, 0).calls, 2);
  EXPECT_EQ(details(*block, 0).returns_to[0], block->pc + 8);
  EXPECT_EQ(details(*block, 0).returns_to[1], block->pc + 14);
  EXPECT_EQ(details(*block, 0).insns, 5);
  EXPECT_EQ(details(*block, 0).branches, 3);  // the je among them
  EXPECT_EQ(passage(*block, 1).kind, Passage::kMiss);
  EXPECT_EQ(passage(*block, 2).kind, Passage::kMiss);
  EXPECT_EQ(passage(*block, 2).outcomes, 0b01);  // je not taken, the inner return as expected
  EXPECT_EQ(passage(*block, 3).kind, Passage::kReturn);
  EXPECT_EQ(passage(*block, 3).calls, 0);
  EXPECT_EQ(passage(*block, 3).outcomes, 0b011);
  EXPECT_EQ(details(*block, 3).insns, 8);
  EXPECT_EQ(details(*block, 3).branches, 6);
}

// A decoder does not push what such a call pushes.
TEST_F(HotCode, ACallOfTheNextInstructionIsNotWaitedFor) {
  Block* const block = get(shape_reads_pc);
  ASSERT_NE(block, nullptr);
  EXPECT_THAT(steps(*block), ElementsAre(0, 5, 6));
  ASSERT_EQ(block->exit_count, 1);
  EXPECT_EQ(passage(*block, 0).kind, Passage::kReturn);
  EXPECT_EQ(passage(*block, 0).calls, 0);
}

}  // namespace
}  // namespace auxtrail::unit
