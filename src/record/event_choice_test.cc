#include "record/event_choice.h"

#include <gmock/gmock.h>
#include <linux/hw_breakpoint.h>

namespace auxtrail::record {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(EventChoice, NamesAndModifiers) {
  for (const char* text : {"task-clock", "task-clock:u"}) {
    const auto choice = choose_event(text);
    ASSERT_TRUE(choice) << text;
    EXPECT_EQ(choice->attr.type, static_cast<uint32_t>(PERF_TYPE_SOFTWARE));
    EXPECT_EQ(choice->attr.config, static_cast<uint64_t>(PERF_COUNT_SW_TASK_CLOCK));
    EXPECT_EQ(choice->attr.exclude_kernel, 1U);
    EXPECT_EQ(choice->name, "task-clock:u");
  }
  EXPECT_EQ(choose_event("cycles")->attr.config, static_cast<uint64_t>(PERF_COUNT_HW_CPU_CYCLES));
  EXPECT_EQ(choose_event("cpu-cycles:pp")->attr.precise_ip, 2U);
  EXPECT_EQ(choose_event("faults")->attr.config, static_cast<uint64_t>(PERF_COUNT_SW_PAGE_FAULTS));
  EXPECT_EQ(choose_event("r1a8")->attr.type, static_cast<uint32_t>(PERF_TYPE_RAW));
  EXPECT_EQ(choose_event("r1a8")->attr.config, 0x1a8U);
}

TEST(EventChoice, Breakpoints) {
  const auto write = choose_event("mem:0x404040/8:w");
  ASSERT_TRUE(write);
  EXPECT_EQ(write->attr.type, static_cast<uint32_t>(PERF_TYPE_BREAKPOINT));
  EXPECT_EQ(write->attr.bp_addr, 0x404040U);
  EXPECT_EQ(write->attr.bp_len, 8U);
  EXPECT_EQ(write->attr.bp_type, static_cast<uint32_t>(HW_BREAKPOINT_W));
  const auto execute = choose_event("mem:0x401000:x:u");
  ASSERT_TRUE(execute);
  EXPECT_EQ(execute->attr.bp_type, static_cast<uint32_t>(HW_BREAKPOINT_X));
  EXPECT_EQ(execute->attr.bp_len, sizeof(long));
  EXPECT_EQ(choose_event("mem:4096")->attr.bp_type, static_cast<uint32_t>(HW_BREAKPOINT_RW));
  for (const char* bad :
       {"mem:", "mem:0x", "mem:1/0", "mem:1/9", "mem:1:q", "mem:1:ww", "mem:1z"}) {
    EXPECT_FALSE(choose_event(bad)) << bad;
  }
}

TEST(EventChoice, UnknownNamesListTheKnown) {
  const auto choice = choose_event("no-such-event");
  ASSERT_FALSE(choice);
  EXPECT_THAT(choice.error().message(), HasSubstr("task-clock"));
  EXPECT_THAT(choice.error().message(), HasSubstr("cache-misses"));
  EXPECT_THAT(choice.error().message(), Not(HasSubstr("cpu-migrations")));
}

TEST(EventChoice, RefusesWhatCannotInterruptUserCode) {
  EXPECT_FALSE(choose_event("context-switches"));
  EXPECT_FALSE(choose_event("cs"));
  EXPECT_FALSE(choose_event("dummy"));
  EXPECT_FALSE(choose_event("cycles:k"));
}

}  // namespace
}  // namespace auxtrail::record
