// Ways through a few lines of code.
#include "decode/tnt_memo.h"

#include <gtest/gtest.h>

#include <array>

namespace auxtrail::decode {
namespace {

class FollowWay : public ::testing::Test {
 protected:
  static constexpr std::array<uint8_t, 17> kCode = {
      0x75, 0x02,                    // 1000 jne 1004
      0x90, 0x90,                    // 1002
      0xe8, 0x07, 0x00, 0x00, 0x00,  // 1004 call 1010
      0x75, 0xf5,                    // 1009 jne 1000
      0xc3, 0x90, 0x90, 0x90, 0x90,  // 100b ret
      0xc3,                          // 1010 ret
  };

  FollowWay() {
    memory_.add(0x1000, kCode);
    graph_.emplace(memory_, flow::ExecMode::k64);
    for (const uint64_t ip : {0x1000, 0x1009}) {
      (void)graph_->follow(graph_->link_to(ip), 0);
      (void)graph_->follow(graph_->link_to(ip), 1);
    }
  }
  uint64_t ip_of(Link link) { return graph_->node(index_of(link)).ip; }

  flow::CodeMemory memory_;
  std::optional<CodeGraph> graph_;
  TntMemo::Way way_;
};

// Not taken at 1000, the call's return, taken at 1009.
TEST_F(FollowWay, ACallThatReturnsIsPartOfTheWay) {
  const Link end = follow_way(*graph_, graph_->link_to(0x1000), 0b011, 3, true, way_);
  EXPECT_EQ(ip_of(end), 0x1000u);
  EXPECT_EQ(way_.bits, 3);
  EXPECT_EQ(way_.not_taken, 1);
  EXPECT_EQ(way_.push_count, 0);
  ASSERT_EQ(way_.taken, 3);
  const Branch& returned = graph_->record(way_.records[1]).branch;
  EXPECT_EQ(returned, (Branch{0x1010, 0x1009, BranchKind::kReturn, false}));
}

TEST_F(FollowWay, UncompressedReturnsTakeNoBit) {
  const Link end = follow_way(*graph_, graph_->link_to(0x1000), 0b011, 3, false, way_);
  EXPECT_EQ(ip_of(end), 0x1002u) << "before the call whose return is to come";
  EXPECT_EQ(way_.bits, 1);
}

// The return at 100b is to a call that nobody saw.
TEST_F(FollowWay, AReturnToAnOlderCallEndsTheWay) {
  const Link end = follow_way(*graph_, graph_->link_to(0x1009), 0b01, 2, true, way_);
  EXPECT_EQ(ip_of(end), 0x100bu);
  EXPECT_EQ(way_.bits, 1);
}

}  // namespace
}  // namespace auxtrail::decode
