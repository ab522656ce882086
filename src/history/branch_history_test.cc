// BranchHistory's selection and perf's brstack form.
#include "history/branch_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace auxtrail::history {
namespace {

using decode::Branch;
using decode::BranchKind;
using testing::ElementsAre;
using testing::IsEmpty;

Branch jump(uint64_t from, uint64_t to) { return {from, to, BranchKind::kJump, false}; }

TEST(BranchHistoryTest, KeepsOrderAndGivesTheNewest) {
  BranchHistory history;
  for (uint64_t i = 1; i <= 5; ++i) history.on_branch(jump(i, i * 16));
  EXPECT_THAT(history.last(2), ElementsAre(jump(4, 64), jump(5, 80)));
  EXPECT_EQ(history.last(99).size(), 5);
  EXPECT_THAT(history.last(0), IsEmpty());
  history.clear();
  EXPECT_THAT(history.branches(), IsEmpty());
}

TEST(BranchHistoryTest, BlocksOnlyOnRequest) {
  BranchHistory plain;
  plain.on_block({1, 2, 3});
  EXPECT_THAT(plain.blocks(), IsEmpty());
  BranchHistory with_blocks({.blocks = true});
  with_blocks.on_block({1, 2, 3});
  EXPECT_EQ(with_blocks.blocks().size(), 1);
}

TEST(BranchHistoryTest, ErrorsAreBounded) {
  BranchHistory history;
  for (int i = 0; i < 1000; ++i) history.on_error({decode::ErrorCause::kLoop, 1, 2});
  EXPECT_EQ(history.errors().size(), BranchHistory::kMaxErrors);
}

// perf script -F brstack: newest first, FROM/TO and five fields of which we know none.
TEST(BrstackTest, NewestFirstWithoutTheLastTraceEnd) {
  const std::vector<Branch> branches = {{0, 0x10, BranchKind::kTraceBegin, false},
                                        jump(0x14, 0x20),
                                        {0x25, 0, BranchKind::kSyscall, true},
                                        {0x30, 0, BranchKind::kTraceEnd, true}};
  EXPECT_EQ(brstack(branches), "0x25/0x0/-/-/-/0/  0x14/0x20/-/-/-/0/  0x0/0x10/-/-/-/0/ ");
  EXPECT_EQ(brstack(branches, 1), "0x25/0x0/-/-/-/0/ ");
  EXPECT_EQ(brstack({}), "");
  const std::vector<uint64_t> cycles = {0, 12, 34, 0};
  EXPECT_EQ(brstack(branches, 2, cycles), "0x25/0x0/-/-/-/34/  0x14/0x20/-/-/-/12/ ");
}

TEST(BranchHistoryTest, KeepsNoMoreThanTheNewest) {
  BranchHistory history({.times = true, .newest = 3});
  for (uint64_t i = 1; i <= 1000; ++i) {
    history.on_time({i * 10, i, true});
    history.on_branch(jump(i, i * 16));
    EXPECT_EQ(history.branches().size(), std::min<uint64_t>(i, 3));
    EXPECT_EQ(history.branches().back(), jump(i, i * 16));
    EXPECT_EQ(history.times().back().cycles, i);
  }
  EXPECT_EQ(history.count(), 1000);
  EXPECT_EQ(history.first_time().cycles, 1);
  const std::vector<Branch> many(50, jump(7, 7));
  history.on_branches(many);
  EXPECT_EQ(history.branches().size(), 3);
  EXPECT_EQ(history.count(), 1050);
}

}  // namespace
}  // namespace auxtrail::history
