// SDM: 64 calls deep, the oldest is dropped.
#include "flow/return_stack.h"

#include <gtest/gtest.h>

namespace auxtrail::flow {
namespace {

TEST(ReturnStack, HoldsTheNewest64) {
  ReturnStack stack;
  for (uint64_t ip = 1; ip <= 100; ++ip) stack.push(ip);
  ReturnStack::Entry entry;
  for (uint64_t ip = 100; ip > 36; --ip) {
    ASSERT_TRUE(stack.pop(entry));
    EXPECT_EQ(entry.ip, ip);
  }
  EXPECT_FALSE(stack.pop(entry));
}

TEST(ReturnStack, AppendingNothingChangesNothing) {
  ReturnStack stack;
  for (uint64_t ip = 1; ip <= 64; ++ip) stack.push(ip);
  stack.append({1000, 0}, 0);
  ReturnStack::Entry entry;
  for (uint64_t ip = 64; ip > 0; --ip) {
    ASSERT_TRUE(stack.pop(entry));
    EXPECT_EQ(entry.ip, ip);
  }
  EXPECT_EQ(stack.size(), 0u);
}

}  // namespace
}  // namespace auxtrail::flow
