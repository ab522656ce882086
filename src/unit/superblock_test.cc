// Which way superblocks go, where they end, and what their exits log. That their code does what the
// program's does is tests/lockstep's business.
#include <gmock/gmock.h>

#include <vector>

#include "unit/code_cache.h"
#include "unit/testing/no_windows.h"
#include "unit/translator.h"

extern "C" {
void shape_loop();
void shape_inner_loop();
void shape_forward();
void shape_call();
void shape_call_again();
void shape_long();
void shape_conditionals();
void shape_syscall();
void shape_jrcxz();
void shape_endless();
}

namespace auxtrail::unit {

namespace {

using channel::Reason;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Step {
  uint64_t offset;  // of the program's instruction from the superblock's first
  uint32_t path;    // before it
  bool operator==(const Step&) const = default;
};

void PrintTo(const Step& step, std::ostream* out) { *out << step.offset << '/' << step.path; }

struct Way {
  int64_t offset;  // of the target from the superblock's first instruction
  uint32_t entry;
  Exit::State state;
  bool operator==(const Way&) const = default;
};

void PrintTo(const Way& way, std::ostream* out) {
  *out << way.offset << '/' << way.entry << '/' << static_cast<int>(way.state);
}

class Superblock : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(code_cache.ensure_ready()); }

  Block* translate(void (*function)()) {
    start_ = reinterpret_cast<uint64_t>(function);
    return code_cache.get(start_, true, &why_);
  }
  // The instructions of the superblock that have code, in its order.
  [[nodiscard]] std::vector<Step> steps(const Block& block) const {
    std::vector<Step> result;
    const InsnMark* last = nullptr;
    for (uint32_t i = 0; i < block.body_bytes; ++i) {
      const Block* found = nullptr;
      const InsnMark* mark = nullptr;
      const auto address = reinterpret_cast<uint64_t>(block.code) + i;
      if (!code_cache.locate(address, &found, &mark) || found != &block || mark == last) continue;
      last = mark;
      result.push_back({code_cache.pc_of(block, *mark) - start_, mark->path});
    }
    return result;
  }
  // The direct ways out of it. Exits are numbered through all superblocks.
  [[nodiscard]] std::vector<Way> ways(const Block& block) const {
    std::vector<Way> result;
    const auto code = reinterpret_cast<uint64_t>(block.code);
    for (uint32_t number = 0; number < 1000; ++number) {
      const Exit& exit = code_cache.exit(number);
      if (exit.field < code || exit.field >= code + block.code_bytes) continue;
      result.push_back({static_cast<int64_t>(exit.target) - static_cast<int64_t>(start_),
                        last_entry(code_cache.passages()[number].outcomes,
                                   code_cache.passages()[number].outcome_count),
                        static_cast<Exit::State>(exit.state)});
    }
    return result;
  }
  static uint32_t last_entry(uint32_t outcomes, uint32_t count) { return count << 8 | outcomes; }

  uint64_t start_ = 0;
  Reason why_ = Reason::kFull;
};

// dec (3 bytes), jnz (2), ret: seven rounds in a row, and a way on from each that ends the loop.
TEST_F(Superblock, LoopsAreUnrolled) {
  Block* block = translate(shape_loop);
  ASSERT_NE(block, nullptr);
  const auto found = steps(*block);
  ASSERT_EQ(found.size(), 2U * kWindowPathBits);
  for (uint32_t round = 0; round < kWindowPathBits; ++round) {
    const uint32_t path = (1U << (round + 1)) - 1;  // all taken so far
    EXPECT_EQ(found[2 * round], (Step{0, path}));
    EXPECT_EQ(found[2 * round + 1], (Step{3, path}));
  }
  const auto exits = ways(*block);
  ASSERT_EQ(exits.size(), kWindowPathBits + 1U);
  for (uint32_t round = 0; round < kWindowPathBits; ++round) {
    const uint32_t outcomes = (1U << (round + 1)) - 2;  // taken, and then once not
    EXPECT_EQ(exits[round], (Way{5, last_entry(outcomes, round + 1), Exit::kUnlogged}));
  }
  EXPECT_EQ(exits.back(), (Way{0, last_entry(0x7f, 7), Exit::kLogged}));
}

TEST_F(Superblock, LoopsThatBeginLaterAreUnrolledToo) {
  Block* block = translate(shape_inner_loop);
  ASSERT_NE(block, nullptr);
  const auto found = steps(*block);
  ASSERT_EQ(found.size(), 1 + 3U * kWindowPathBits);
  EXPECT_EQ(found[3], (Step{9, 1}));
  EXPECT_EQ(found[4], (Step{3, 0b11}));
}

TEST_F(Superblock, ForwardConditionalsAreFollowedStraightOn) {
  Block* block = translate(shape_forward);
  ASSERT_NE(block, nullptr);
  EXPECT_THAT(steps(*block), ElementsAre(Step{0, 1}, Step{3, 1}, Step{5, 0b10}, Step{8, 0b10}));
  EXPECT_THAT(ways(*block), ElementsAre(Way{8, last_entry(1, 1), Exit::kUnlogged}));
}

TEST_F(Superblock, JumpsIfRcxIsZeroAreFollowedStraightOn) {
  Block* block = translate(shape_jrcxz);
  ASSERT_NE(block, nullptr);
  EXPECT_THAT(steps(*block), ElementsAre(Step{0, 1}, Step{2, 0b10}, Step{5, 0b10}));
  EXPECT_THAT(ways(*block), ElementsAre(Way{5, last_entry(1, 1), Exit::kUnlogged}));
}

// call (5), ret (1), inc (3), jmp (2), ud2 (2), ret. Nothing stands for the jump.
TEST_F(Superblock, DirectCallsAndJumpsAreFollowedWithoutATrace) {
  session.config.leader.config = kNoReturnCompression;
  Block* block = translate(shape_call);
  session.config.leader.config = 0;
  ASSERT_NE(block, nullptr);
  EXPECT_THAT(steps(*block), ElementsAre(Step{0, 1}, Step{6, 1}, Step{13, 1}));
  EXPECT_THAT(ways(*block), IsEmpty());
}

// The return is to the call's next instruction and logged as taken; its miss has no direct exit.
TEST_F(Superblock, ReturnsFromCallsInsideAreOutcomes) {
  Block* block = translate(shape_call_again);
  ASSERT_NE(block, nullptr);
  const auto leaf = reinterpret_cast<uint64_t>(shape_call) + 6 - start_;
  EXPECT_THAT(steps(*block),
              ElementsAre(Step{0, 1}, Step{leaf, 1}, Step{leaf + 7, 1}, Step{5, 0b11}));
}

TEST_F(Superblock, EndsAfterSoManyInstructions) {
  Block* block = translate(shape_long);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(steps(*block).size(), Translator::kWindow.insns);
  EXPECT_THAT(ways(*block), ElementsAre(Way{3 * Translator::kWindow.insns, 0, Exit::kLogged}));
}

TEST_F(Superblock, EndsWhenItsPathIsFull) {
  Block* block = translate(shape_conditionals);
  ASSERT_NE(block, nullptr);
  const auto exits = ways(*block);
  ASSERT_EQ(exits.size(), kWindowPathBits + 1U);
  EXPECT_EQ(exits.back().state, Exit::kLogged);
  EXPECT_EQ(exits.back().entry >> 8, kWindowPathBits);
}

TEST_F(Superblock, EndsBeforeWhatCannotBeTranslated) {
  Block* block = translate(shape_syscall);
  ASSERT_NE(block, nullptr);
  EXPECT_THAT(steps(*block), ElementsAre(Step{0, 1}));
  EXPECT_THAT(ways(*block), ElementsAre(Way{3, 0, Exit::kEnd}));
}

// A cycle without a branch that logs would never end.
TEST_F(Superblock, AJumpBackToItsStartLeavesIt) {
  Block* block = translate(shape_endless);
  ASSERT_NE(block, nullptr);
  EXPECT_THAT(ways(*block), ElementsAre(Way{0, 0, Exit::kLogged}));
}

TEST_F(Superblock, TheUnitsOwnCodeIsNotTranslated) {
  EXPECT_EQ(translate(reinterpret_cast<void (*)()>(&unit_exit)), nullptr);
  EXPECT_EQ(why_, Reason::kInterposed);
}

TEST_F(Superblock, NothingNewWithoutLeave) {
  why_ = Reason::kFull;
  EXPECT_EQ(code_cache.get(reinterpret_cast<uint64_t>(&shape_long) + 3, false, &why_), nullptr);
  EXPECT_EQ(why_, Reason::kColdCode);
}

}  // namespace
}  // namespace auxtrail::unit
