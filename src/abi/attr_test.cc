// Attrs of other sizes, and event names both ways.
#include "abi/attr.h"

#include <gtest/gtest.h>

#include <cstring>

namespace auxtrail::abi {
namespace {

TEST(AttrTest, AnySizeIsRead) {
  std::byte bytes[200];
  for (size_t at = 0; at < sizeof(bytes); ++at) bytes[at] = std::byte{0xff};
  EXPECT_FALSE(read_attr(std::span(bytes, 63)));
  const auto old = read_attr(std::span(bytes, PERF_ATTR_SIZE_VER0));
  ASSERT_TRUE(old);
  EXPECT_EQ(old->bp_addr, ~uint64_t{0});
  EXPECT_EQ(old->branch_sample_type, 0U) << "not in the first version";
  const auto newer = read_attr(std::span(bytes, 200));
  ASSERT_TRUE(newer);
  EXPECT_EQ(newer->aux_sample_size, 0xffffffffU);
}

TEST(AttrTest, NamesGoBothWays) {
  for (const char* name :
       {"cpu-clock", "task-clock:u", "page-faults:k", "cycles:ppp", "instructions:up",
        "branch-misses", "L1-dcache-load-misses", "LLC-stores", "dTLB-prefetch-misses:u", "r1a8",
        "dummy:uh", "node-loads"}) {
    const auto attr = find_event(name);
    ASSERT_TRUE(attr) << name;
    EXPECT_EQ(event_name(*attr), name);
  }
}

TEST(AttrTest, AliasesAndUnknownNames) {
  EXPECT_EQ(find_event("cs")->config, uint64_t{PERF_COUNT_SW_CONTEXT_SWITCHES});
  EXPECT_EQ(find_event("cpu-cycles")->type, uint32_t{PERF_TYPE_HARDWARE});
  for (const char* name :
       {"", ":", "nonsense", "cpu-clock:", "cpu-clock:x", "cycles:pppp", "r", "rxyz", "r1g"}) {
    EXPECT_FALSE(find_event(name)) << name;
  }
  for (const auto name : generic_event_names()) EXPECT_TRUE(find_event(name)) << name;
}

TEST(AttrTest, PmusAndOddities) {
  perf_event_attr attr{};
  attr.type = 8;
  attr.config = 0x2401;
  attr.exclude_kernel = attr.exclude_hv = 1;
  EXPECT_EQ(event_name(attr, {{8, "intel_pt"}}), "intel_pt//u");
  EXPECT_EQ(event_name(attr), "unknown-attr-type-8:u");
  EXPECT_EQ(event_name(attr, {{8, "uncore"}}), "uncore/config=0x2401/u");
  attr = {};
  attr.type = PERF_TYPE_BREAKPOINT;
  attr.bp_addr = 0x1234;
  attr.bp_type = 3;
  EXPECT_EQ(event_name(attr), "mem:0x1234:rw");
}

}  // namespace
}  // namespace auxtrail::abi
