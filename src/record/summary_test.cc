#include "record/summary.h"

#include <gmock/gmock.h>

#include <cerrno>

namespace auxtrail::record {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Summary plain() {
  Summary summary;
  summary.file = "perf.data";
  summary.file_bytes = (1U << 20) + (1U << 18);
  summary.trace_unit = "software (as asked)";
  summary.event_name = "task-clock:u";
  summary.records.samples = 5678;
  summary.records.aux_bytes = uint64_t{21} << 20;
  summary.processes = summary.kernel_triggers = 1;
  return summary;
}

TEST(Summary, OneLineWhereNothingWasLost) {
  EXPECT_THAT(summary_lines(plain()),
              ElementsAre("[ auxtrail record: Captured and wrote 1.250 MB perf.data (5678 samples, "
                          "21.0 MB AUX, trace unit: software (as asked), trigger: kernel event "
                          "task-clock:u) ]"));
}

TEST(Summary, EachLossIsToldApart) {
  Summary summary = plain();
  summary.units.lost_samples = 3;
  summary.units.no_slot_overflows = 4;
  summary.records.bad_records = 5;
  summary.units.ended_by[static_cast<size_t>(channel::Reason::kFull)] = 90;
  summary.units.ended_by[static_cast<size_t>(channel::Reason::kColdCode)] = 7;
  summary.units.ended_by[static_cast<size_t>(channel::Reason::kSyscall)] = 8;
  summary.units.ended_by[static_cast<size_t>(channel::Reason::kBusyUnit)] = 6;
  summary.units.window_ns = 105 * 42000;
  summary.units.blocks_translated = 321;
  summary.coverage = Census::Coverage{9, 0, {{{"a", "", channel::Declined::kMemoryLimit}, 1}}};
  summary.still_running = 1;
  const auto lines = summary_lines(summary);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines[1], HasSubstr("3 samples found no room"));
  EXPECT_THAT(lines[1], HasSubstr("4 overflows of threads beyond the 64"));
  EXPECT_THAT(lines[1], HasSubstr("5 records refused"));
  EXPECT_THAT(lines[1], HasSubstr("6 overflows came while the trace unit was at work"));
  EXPECT_THAT(lines[1], Not(HasSubstr("connections")));
  EXPECT_THAT(lines[2],
              HasSubstr("105 in all, 90 full, ended early: 8 syscall, 7 cold code; 42 us each; "
                        "321 superblocks translated"));
  EXPECT_THAT(
      lines[3],
      HasSubstr("not sampled: 1 of 9 program starts; under a memory limit (ulimit -v, -d): a"));
  EXPECT_THAT(lines[3], HasSubstr("1 still running"));
}

TEST(Summary, WhatTheUnitCountedAndWhatNot) {
  Summary summary = plain();
  summary.event_name = "";
  summary.counted_name = "branches:u";
  summary.continuous = true;
  summary.units.counted_insns = 987;
  summary.units.counted_branches = 65;
  summary.units.native_gaps = 4;
  summary.units.native_ns = 1234567;
  const auto lines = summary_lines(summary);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[0], HasSubstr("trigger: the trace unit's count of branches:u)"));
  EXPECT_THAT(lines[2], HasSubstr("Counted: 987 instructions, 65 branches; not counted is"));
  EXPECT_THAT(lines[2], HasSubstr("4 times, 1.235 ms"));
}

TEST(Summary, TimersSayWhy) {
  Summary summary = plain();
  summary.kernel_triggers = 0;
  summary.timer_hz = 250;
  summary.trigger_refusals[EACCES] = 1;
  EXPECT_THAT(summary_lines(summary)[0],
              HasSubstr("thread timers at 250 Hz because perf_event_open: EACCES"));
}

TEST(Summary, LateOverflowsAreNotLost) {
  Summary summary = plain();
  summary.units.deferred = 9;
  const auto lines = summary_lines(summary);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[1], HasSubstr("Late: 9 overflows"));
}

TEST(Summary, WhatDamageCostIsTold) {
  Summary summary = plain();
  summary.records.bad_rings = 2;
  summary.records.bad_ring_bytes = 345;
  const auto lines = summary_lines(summary);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[1], HasSubstr("2 rings found damaged, 345 bytes skipped in damaged rings"));
}

TEST(Summary, EventsThatDidNotOpenAreNamed) {
  Summary summary = plain();
  summary.continuous = true;
  summary.unopened_events[{"faults:u", EMFILE}] = 2;
  summary.entry_refusals[ENOSPC] = 1;
  summary.timer_refusals[123456] = 1;  // the number is the program's
  const auto lines = summary_lines(summary);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[1], HasSubstr("Events: faults:u could not be opened in 2 processes "
                                  "(perf_event_open: EMFILE)"));
  EXPECT_THAT(lines[1], HasSubstr("back into the trace in 1 process (perf_event_open: ENOSPC)"));
  EXPECT_THAT(lines[1], HasSubstr("no thread timer could be had in 1 process (timer_create: "
                                  "errno 123456)"));
}

TEST(Summary, SumsDoNotWrap) {
  UnitTotals totals;
  channel::Counters scribbled;
  scribbled.samples = UINT64_MAX - 1;
  totals.add(scribbled);
  totals.add(scribbled);
  EXPECT_EQ(totals.samples, UINT64_MAX);
}

}  // namespace
}  // namespace auxtrail::record
