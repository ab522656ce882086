#include "record/event_text.h"

#include <gmock/gmock.h>

namespace auxtrail::record {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One line per list: "name{event|terms|modifiers, ...}:modifiers ...".
std::string shape(std::string_view text) {
  const auto groups = read_event_text(text);
  if (!groups) return groups.error().message();
  std::string result;
  for (const EventGroup& group : *groups) {
    if (group.braces) result += group.name + "{";
    for (const EventText& event : group.events) {
      result += "<" + event.name;
      if (event.slashes) result += "/";
      for (const EventTerm& term : event.terms) {
        result += " " + term.name + (term.value ? "=" + *term.value : "");
      }
      if (!event.modifiers.empty()) result += " :" + event.modifiers;
      result += ">";
    }
    if (group.braces) result += "}" + group.modifiers;
  }
  return result;
}

TEST(EventText, EventsAndModifiers) {
  EXPECT_EQ(shape("page-faults"), "<page-faults>");
  EXPECT_EQ(shape("page-faults:u"), "<page-faults :u>");
  EXPECT_EQ(shape("cycles:upp,r1a8:u"), "<cycles :upp><r1a8 :u>");
  EXPECT_EQ(shape(" faults , cs "), "<faults><cs>");
  EXPECT_EQ(shape("faults:"), "<faults>");
}

TEST(EventText, Terms) {
  EXPECT_EQ(shape("intel_pt//u"), "<intel_pt/ :u>");
  EXPECT_EQ(shape("intel_pt//"), "<intel_pt/>");
  EXPECT_EQ(shape("intel_pt"), "<intel_pt>");
  EXPECT_EQ(shape("intel_pt/psb_period=3,noretcomp/u"), "<intel_pt/ psb_period=3 noretcomp :u>");
  EXPECT_EQ(shape("cpu-clock/ freq = 99 /"), "<cpu-clock/ freq=99>");
  EXPECT_EQ(shape("faults/period=0x10/,cs"), "<faults/ period=0x10><cs>");
}

TEST(EventText, Groups) {
  EXPECT_EQ(shape("{intel_pt//u,page-faults:u}:S"), "{<intel_pt/ :u><page-faults :u>}S");
  EXPECT_EQ(shape("grp{faults,cs},cpu-clock"), "grp{<faults><cs>}<cpu-clock>");
  EXPECT_EQ(shape("{faults},{cs}:u"), "{<faults>}{<cs>}u");
}

TEST(EventText, BreakpointsAndTracepoints) {
  EXPECT_EQ(shape("mem:0x404040/8:w:u,faults"), "<mem:0x404040/8:w:u><faults>");
  EXPECT_EQ(shape("{intel_pt//u,mem:0x10:x}"), "{<intel_pt/ :u><mem:0x10:x>}");
  EXPECT_EQ(shape("sched:sched_switch"), "<sched:sched_switch>");
  EXPECT_EQ(shape("sched:sched_switch:k,faults:u"), "<sched:sched_switch :k><faults :u>");
}

TEST(EventText, WhatWasWrittenIsKept) {
  const auto groups = read_event_text("{intel_pt/psb_period=3/u, mem:0x10:x}:S");
  ASSERT_TRUE(groups);
  EXPECT_EQ(groups->front().events[0].text, "intel_pt/psb_period=3/u");
  EXPECT_EQ(groups->front().events[1].text, "mem:0x10:x");
}

TEST(EventText, ErrorsTellTheColumn) {
  EXPECT_THAT(shape("faults,,cs"), HasSubstr("column 8: \",\" where the name of an event"));
  EXPECT_THAT(shape("{faults,cs"), HasSubstr("column 11: the end where \",\" or \"}\""));
  EXPECT_THAT(shape("faults/period=1"), HasSubstr("the closing \"/\""));
  for (const char* bad : {"", ",", "{}", "faults,", "faults}", "{{faults}}", "faults//:u",
                          "faults/,/", "faults/period=/", "faults:u:p", "{faults}:", "{faults}u",
                          "g:{faults}", "a:", "{faults", "faults/period=1,/", "faults{"}) {
    EXPECT_FALSE(read_event_text(bad)) << bad;
  }
}

}  // namespace
}  // namespace auxtrail::record
