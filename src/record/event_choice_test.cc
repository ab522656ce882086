#include "record/event_choice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <linux/hw_breakpoint.h>

#include <filesystem>
#include <fstream>

#include "channel/layout.h"
#include "record/size_text.h"

namespace auxtrail::record {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

MachineFacts machine(bool hardware_counters = false) {
  return {{false, 10}, kMaxUnitRateHz, hardware_counters, "/nonexistent"};
}

Result<EventChoice> choose(const std::string& event, RecordOptions options = {}) {
  options.event = event;
  return choose_events(options, machine());
}

std::string refusal(const std::string& event, const RecordOptions& options = {}) {
  const auto choice = choose(event, options);
  return choice ? "accepted" : choice.error().message();
}

RecordOptions with_aux_sample(uint32_t bytes = 0) {
  RecordOptions options;
  options.aux_sample_bytes = bytes;
  return options;
}

RecordOptions with_snapshot(uint64_t bytes = 0) {
  RecordOptions options;
  options.snapshot = SnapshotOptions{bytes, false};
  return options;
}

RecordOptions with_unit(UnitChoice unit) {
  RecordOptions options;
  options.unit = unit;
  return options;
}

// ---- modes ----

TEST(EventChoice, NothingAskedMeansAuxSamplesOfTheClock) {
  const auto choice = choose("");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->mode, TraceMode::kSample);
  EXPECT_EQ(choice->unit, UnitKind::kWindow);
  EXPECT_EQ(choice->leader.name, "intel_pt//u");
  EXPECT_EQ(choice->leader.attr.config, 0x2401U);
  EXPECT_EQ(choice->leader.attr.type, 10U);
  EXPECT_TRUE(choice->leader.implied);
  ASSERT_THAT(choice->samplers, SizeIs(1));
  const Sampler& sampler = choice->samplers[0];
  EXPECT_EQ(sampler.name, "task-clock:u");
  EXPECT_EQ(sampler.attr.sample_freq, 999U);
  EXPECT_EQ(sampler.attr.freq, 1U);
  EXPECT_EQ(sampler.attr.aux_sample_size, 4096U);
  EXPECT_EQ(sampler.attr.inherit, 1U);
  EXPECT_TRUE(sampler.grouped);
  EXPECT_EQ(choice->aux_pages, 16U);
  EXPECT_THAT(choice->warnings, IsEmpty());
}

TEST(EventChoice, TheAuxEventAloneIsFullTrace) {
  const auto choice = choose("intel_pt//u");
  ASSERT_TRUE(choice) << choice.error().message();
  EXPECT_EQ(choice->mode, TraceMode::kFull);
  EXPECT_EQ(choice->unit, UnitKind::kContinuous);
  EXPECT_THAT(choice->samplers, IsEmpty());
  EXPECT_EQ(choice->aux_pages, 1024U);
  EXPECT_EQ(choice->leader.attr.config, 0x3002401U);  // a PSB every 16 KiB, as perf has it
  EXPECT_FALSE(choice->leader.implied);
}

TEST(EventChoice, FullTraceWithEvents) {
  const auto choice = choose("{intel_pt//u,page-faults:u}");
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->mode, TraceMode::kFull);
  ASSERT_THAT(choice->samplers, SizeIs(1));
  EXPECT_EQ(choice->samplers[0].attr.aux_sample_size, 0U);
  EXPECT_TRUE(choice->samplers[0].grouped);
  EXPECT_FALSE(choose("intel_pt//u,page-faults:u")->samplers[0].grouped);
}

TEST(EventChoice, AuxSampleSizes) {
  const auto all = choose("{intel_pt//u,faults,task-clock}", with_aux_sample(8192));
  ASSERT_TRUE(all);
  EXPECT_EQ(all->mode, TraceMode::kSample);
  EXPECT_EQ(all->samplers[0].attr.aux_sample_size, 8192U);
  EXPECT_EQ(all->samplers[1].attr.aux_sample_size, 8192U);
  const auto default_size = choose("{intel_pt//u,faults}", with_aux_sample());
  EXPECT_EQ(default_size->samplers[0].attr.aux_sample_size, 4096U);
  const auto own = choose("{intel_pt//u,faults/aux-sample-size=8192/u,task-clock}");
  ASSERT_TRUE(own);
  EXPECT_EQ(own->mode, TraceMode::kSample);
  EXPECT_EQ(own->samplers[0].attr.aux_sample_size, 8192U);
  EXPECT_EQ(own->samplers[1].attr.aux_sample_size, 0U);
  const auto mixed =
      choose("{intel_pt//u,faults/aux-sample-size=512/,cs,cpu-clock}", with_aux_sample(1024));
  EXPECT_EQ(mixed->samplers[0].attr.aux_sample_size, 512U);
  EXPECT_EQ(mixed->samplers[1].attr.aux_sample_size, 1024U);
  const auto without = choose("{intel_pt//u,faults,cs/aux-sample-size=0/}", with_aux_sample());
  EXPECT_EQ(without->samplers[1].attr.aux_sample_size, 0U);
}

// As perf regroups them.
TEST(EventChoice, ATermOfItsOwnBringsAnEventIntoTheGroup) {
  const auto choice = choose("intel_pt//u,faults/aux-sample-size=512/,cs");
  ASSERT_TRUE(choice);
  EXPECT_TRUE(choice->samplers[0].grouped);
  EXPECT_FALSE(choice->samplers[1].grouped);
}

TEST(EventChoice, WithoutAnAuxEventAllEventsCarryAuxSamples) {
  const auto choice = choose("faults,task-clock:u");
  ASSERT_TRUE(choice);
  EXPECT_TRUE(choice->leader.implied);
  for (const Sampler& sampler : choice->samplers) {
    EXPECT_TRUE(sampler.grouped);
    EXPECT_EQ(sampler.attr.aux_sample_size, 4096U);
  }
  EXPECT_EQ(choice->unit, UnitKind::kContinuous);  // two triggers
}

TEST(EventChoice, Snapshots) {
  const auto plain = choose("", with_snapshot());
  ASSERT_TRUE(plain) << plain.error().message();
  EXPECT_EQ(plain->mode, TraceMode::kSnapshot);
  EXPECT_TRUE(plain->leader.implied);
  EXPECT_THAT(plain->samplers, IsEmpty());
  EXPECT_EQ(plain->aux_pages, 1024U);
  EXPECT_EQ(choose("intel_pt//u", with_snapshot(100000))->aux_pages, 32U);
  RecordOptions options = with_snapshot(100000);
  options.aux_pages = 16;
  EXPECT_THAT(refusal("intel_pt//u", options), HasSubstr("does not fit"));
  options.snapshot->bytes = 49152;
  EXPECT_EQ(choose("intel_pt//u", options)->snapshot.bytes, 49152U);
  EXPECT_EQ(choose("intel_pt//u", options)->aux_pages, 16U);
  options.aux_sample_bytes = 4096;
  EXPECT_THAT(refusal("{intel_pt//u,faults}", options), HasSubstr("exclude each other"));
  EXPECT_THAT(refusal("", with_snapshot(1ULL << 40)), HasSubstr("does not fit"));
}

TEST(EventChoice, ContinuousTraceHasARoomyAuxArea) {
  RecordOptions options;
  for (const uint32_t pages : {1U, 2U, 4U}) {
    options.aux_pages = pages;
    for (const char* event : {"intel_pt//u", "faults:u"}) {  // full trace, samples
      const auto choice = choose(event, options);
      ASSERT_TRUE(choice) << choice.error().message();
      EXPECT_EQ(choice->aux_pages, 8U) << event;
      EXPECT_THAT(choice->warnings,
                  ElementsAre(HasSubstr(fmt::format("8 pages instead of {}", pages))));
    }
    EXPECT_EQ(choose("task-clock:u", options)->aux_pages, pages);  // windows
  }
  options.snapshot = SnapshotOptions{};
  EXPECT_EQ(choose("intel_pt//u", options)->aux_pages, 8U);
}

// 16 KiB of an area may be written over while it is copied.
TEST(EventChoice, TheAuxAreaHoldsMoreThanTheSnapshot) {
  EXPECT_EQ(choose("intel_pt//u", with_snapshot(4096))->aux_pages, 8U);
  EXPECT_EQ(choose("intel_pt//u", with_snapshot(16384))->aux_pages, 8U);
  EXPECT_EQ(choose("intel_pt//u", with_snapshot(65536))->aux_pages, 32U);
  RecordOptions options = with_snapshot(65536);
  options.aux_pages = 16;
  const auto raised = choose("intel_pt//u", options);
  ASSERT_TRUE(raised) << raised.error().message();
  EXPECT_EQ(raised->aux_pages, 32U);
  EXPECT_THAT(raised->warnings, ElementsAre(HasSubstr("32 pages instead of 16")));
  EXPECT_THAT(refusal("intel_pt//u", with_snapshot(uint64_t{kMaxPages} * channel::kPageBytes)),
              HasSubstr("does not fit"));
  EXPECT_THAT(refusal("intel_pt//u", with_snapshot(100)), HasSubstr("at least 160"));
}

TEST(EventChoice, WhatPerfRefusesToGroup) {
  EXPECT_THAT(refusal("intel_pt//u,faults", with_aux_sample()), HasSubstr("outside the AUX event"));
  EXPECT_THAT(refusal("intel_pt//u", with_aux_sample()), HasSubstr("besides the AUX event"));
  EXPECT_THAT(refusal("{faults,intel_pt//u}"), HasSubstr("leads its group"));
  EXPECT_THAT(refusal("intel_pt//u,intel_pt//u"), HasSubstr("two AUX events"));
  EXPECT_THAT(refusal("{intel_pt/aux-sample-size=4096/u,faults}"), HasSubstr("AUX area event"));
  EXPECT_THAT(refusal("intel_pt//k"), HasSubstr("user space only"));
}

TEST(EventChoice, SizesOutOfRangeAreRefused) {
  for (const uint32_t bytes : {1U, 159U, 61441U}) {
    EXPECT_THAT(refusal("faults", with_aux_sample(bytes)), HasSubstr("out of range"));
  }
  EXPECT_THAT(refusal("faults/aux-sample-size=8/"), HasSubstr("out of range"));
  EXPECT_EQ(choose("faults", with_aux_sample(61440))->samplers[0].attr.aux_sample_size, 61440U);
}

// ---- who traces and who counts ----

TEST(EventChoice, WindowsServeOneEventThatInterruptsTheProgram) {
  EXPECT_EQ(choose("task-clock")->unit, UnitKind::kWindow);
  EXPECT_EQ(choose("page-faults")->unit, UnitKind::kContinuous);
  EXPECT_EQ(choose("mem:0x1000:w")->unit, UnitKind::kContinuous);
  EXPECT_EQ(choose("page-faults", with_unit(UnitChoice::kContinuous))->unit, UnitKind::kContinuous);
  const RecordOptions window = with_unit(UnitChoice::kWindow);
  EXPECT_EQ(choose("page-faults", window)->unit, UnitKind::kWindow);
  for (const char* event : {"intel_pt//u", "faults,task-clock", "cs", "{faults}:S"}) {
    EXPECT_THAT(refusal(event, window), HasSubstr("--unit=continuous")) << event;
    EXPECT_EQ(choose(event)->unit, UnitKind::kContinuous) << event;
  }
}

TEST(EventChoice, TheContinuousUnitCountsBranchesAndInstructions) {
  const auto choice = choose("{intel_pt//u,branches:u,instructions,cycles}", with_aux_sample());
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->samplers[0].counter, Counter::kBranches);
  EXPECT_EQ(choice->samplers[1].counter, Counter::kInstructions);
  EXPECT_EQ(choice->samplers[2].counter, Counter::kKernel);
  RecordOptions options;
  options.event = "branch-instructions";
  EXPECT_EQ(choose_events(options, machine(false))->samplers[0].counter, Counter::kBranches);
  EXPECT_EQ(choose_events(options, machine(true))->samplers[0].counter, Counter::kKernel);
  EXPECT_EQ(choose_events(options, machine(true))->unit, UnitKind::kWindow);
  options.unit = UnitChoice::kContinuous;
  EXPECT_EQ(choose_events(options, machine(true))->samplers[0].counter, Counter::kBranches);
  options.unit = UnitChoice::kWindow;
  EXPECT_EQ(choose_events(options, machine(false))->samplers[0].counter, Counter::kKernel);
}

// ---- events ----

TEST(EventChoice, NamesAndModifiers) {
  for (const char* text : {"task-clock", "task-clock:u", "task-clock:uH", "task-clock//u"}) {
    const auto choice = choose(text);
    ASSERT_TRUE(choice) << text;
    const Sampler& sampler = choice->samplers[0];
    EXPECT_EQ(sampler.attr.type, static_cast<uint32_t>(PERF_TYPE_SOFTWARE));
    EXPECT_EQ(sampler.attr.config, static_cast<uint64_t>(PERF_COUNT_SW_TASK_CLOCK));
    EXPECT_EQ(sampler.attr.exclude_kernel, 1U);
    EXPECT_EQ(sampler.name, "task-clock:u");
  }
  const auto attr = [](const char* text) { return choose(text)->samplers[0].attr; };
  EXPECT_EQ(attr("cycles").config, static_cast<uint64_t>(PERF_COUNT_HW_CPU_CYCLES));
  EXPECT_EQ(attr("cpu-cycles:pp").precise_ip, 2U);
  EXPECT_EQ(attr("{cycles:p,faults}:p").precise_ip, 2U);  // the group's letters are added
  EXPECT_EQ(attr("faults").config, static_cast<uint64_t>(PERF_COUNT_SW_PAGE_FAULTS));
  EXPECT_EQ(attr("r1a8").type, static_cast<uint32_t>(PERF_TYPE_RAW));
  EXPECT_EQ(attr("r1a8").config, 0x1a8U);
  EXPECT_EQ(attr("faults:I").exclude_idle, 1U);
  EXPECT_EQ(choose("faults/name=mine/u")->samplers[0].name, "mine");
}

TEST(EventChoice, ModifiersWithoutAMeaningHere) {
  for (const char* text : {"cycles:k", "faults:G", "faults:D", "faults:e", "faults:P", "faults:b",
                           "faults:uu", "cycles:pppp", "{cycles:pp}:pp", "faults:x"}) {
    EXPECT_FALSE(choose(text)) << text;
  }
}

TEST(EventChoice, UnknownNamesListTheKnown) {
  const std::string message = refusal("no-such-event");
  EXPECT_THAT(message, HasSubstr("task-clock"));
  EXPECT_THAT(message, HasSubstr("cache-misses"));
  EXPECT_THAT(message, HasSubstr("context-switches"));
  EXPECT_THAT(message, Not(HasSubstr("dummy")));
  EXPECT_THAT(refusal("cpu/event=1/"), HasSubstr("PMU \"cpu\""));
  EXPECT_THAT(refusal("faults/call-graph=lbr/"), HasSubstr("call-graph"));
}

TEST(EventChoice, EventsInsideTheKernelAreNotRestrictedToUserSpace) {
  for (const char* text : {"context-switches", "cs", "cpu-migrations", "cs:k", "cs:uk"}) {
    const auto choice = choose(text);
    ASSERT_TRUE(choice) << text;
    EXPECT_EQ(choice->samplers[0].attr.exclude_kernel, 0U) << text;
    EXPECT_TRUE(choice->samplers[0].in_kernel) << text;
  }
  EXPECT_THAT(refusal("cs:u"), HasSubstr("leave out :u"));
  EXPECT_FALSE(choose("dummy"));
  EXPECT_FALSE(choose("bpf-output"));
}

TEST(EventChoice, Breakpoints) {
  const auto attr = [](const char* text) { return choose(text)->samplers[0].attr; };
  const auto write = attr("mem:0x404040/8:w");
  EXPECT_EQ(write.type, static_cast<uint32_t>(PERF_TYPE_BREAKPOINT));
  EXPECT_EQ(write.bp_addr, 0x404040U);
  EXPECT_EQ(write.bp_len, 8U);
  EXPECT_EQ(write.bp_type, static_cast<uint32_t>(HW_BREAKPOINT_W));
  EXPECT_EQ(write.sample_period, 1U);
  const auto execute = attr("mem:0x401000:x:u");
  EXPECT_EQ(execute.bp_type, static_cast<uint32_t>(HW_BREAKPOINT_X));
  EXPECT_EQ(execute.bp_len, sizeof(long));
  EXPECT_EQ(attr("mem:4096").bp_type, static_cast<uint32_t>(HW_BREAKPOINT_RW));
  for (const char* bad : {"mem:", "mem:0x", "mem:8/9", "mem:8/3", "mem:1:q", "mem:8:ww", "mem:1z",
                          "mem:8:r", "mem:8:rwx", "mem:6/4", "mem:8/4:x", "mem:8:k"}) {
    EXPECT_FALSE(choose(bad)) << bad;
  }
}

TEST(EventChoice, Tracepoints) {
  const std::string tracefs = ::testing::TempDir() + "/tracefs";
  std::filesystem::create_directories(tracefs + "/events/sched/sched_switch");
  std::ofstream(tracefs + "/events/sched/sched_switch/id") << "314\n";
  RecordOptions options;
  options.event = "sched:sched_switch";
  options.filters = {{"prev_pid == 1", 18}, {"next_pid == 2", 18}};
  const MachineFacts facts{{false, 10}, kMaxUnitRateHz, false, tracefs};
  const auto choice = choose_events(options, facts);
  ASSERT_TRUE(choice) << choice.error().message();
  const Sampler& sampler = choice->samplers[0];
  EXPECT_EQ(sampler.attr.type, static_cast<uint32_t>(PERF_TYPE_TRACEPOINT));
  EXPECT_EQ(sampler.attr.config, 314U);
  EXPECT_EQ(sampler.attr.sample_period, 1U);
  EXPECT_EQ(sampler.attr.exclude_kernel, 0U);
  EXPECT_EQ(sampler.name, "sched:sched_switch");
  EXPECT_EQ(sampler.filter, "(prev_pid == 1) && (next_pid == 2)");
  options.filters.clear();
  options.event = "sched:nothing";
  EXPECT_THAT(choose_events(options, facts).error().message(), HasSubstr("no such event"));
  options.event = "sched:*";
  EXPECT_THAT(choose_events(options, facts).error().message(), HasSubstr("pattern"));
  EXPECT_THAT(refusal("sched:sched_switch"), HasSubstr("mount -t tracefs"));
  std::filesystem::remove_all(tracefs);
}

// ---- rates ----

TEST(EventChoice, RatesOfOptionsAndTerms) {
  const auto rate = [](const char* event, const RecordOptions& options) {
    const perf_event_attr attr = choose(event, options)->samplers[0].attr;
    return std::pair(attr.freq == 1, uint64_t{attr.sample_freq});
  };
  RecordOptions frequency;
  frequency.frequency_hz = 99;
  RecordOptions period;
  period.period = 1000000;
  EXPECT_EQ(rate("task-clock", frequency), std::pair(true, uint64_t{99}));
  EXPECT_EQ(rate("task-clock", period), std::pair(false, uint64_t{1000000}));
  EXPECT_EQ(rate("task-clock/freq=7/", period), std::pair(true, uint64_t{7}));
  EXPECT_EQ(rate("faults/period=7/", frequency), std::pair(false, uint64_t{7}));
  EXPECT_EQ(rate("faults/period=7,freq=9/", {}), std::pair(true, uint64_t{9}));  // the last
  EXPECT_EQ(rate("mem:8", {}), std::pair(false, uint64_t{1}));
  EXPECT_EQ(rate("mem:8", frequency), std::pair(true, uint64_t{99}));
  EXPECT_THAT(refusal("faults/freq=0/"), HasSubstr("must not be 0"));
}

TEST(EventChoice, ReadingTheGroup) {
  const auto choice = choose("{intel_pt//u,faults,branches}:S", with_aux_sample());
  ASSERT_TRUE(choice);
  const Sampler& reader = choice->samplers[0];
  const Sampler& counter = choice->samplers[1];
  EXPECT_FALSE(reader.counts_only);
  EXPECT_EQ(reader.attr.aux_sample_size, 4096U);
  EXPECT_EQ(reader.attr.sample_freq, 999U);
  EXPECT_TRUE(counter.counts_only);
  EXPECT_EQ(counter.attr.aux_sample_size, 0U);
  EXPECT_EQ(counter.attr.sample_freq, 0U);
  for (const Sampler& sampler : choice->samplers) {
    EXPECT_EQ(sampler.attr.read_format, static_cast<uint64_t>(PERF_FORMAT_ID | PERF_FORMAT_GROUP));
    EXPECT_EQ(sampler.attr.sample_type, static_cast<uint64_t>(PERF_SAMPLE_READ));
    EXPECT_EQ(sampler.attr.inherit, 0U);
  }
  EXPECT_THAT(choice->warnings, ElementsAre(HasSubstr("first thread only")));
}

// ---- filters ----

TEST(EventChoice, AddressFiltersAreTheAuxEvents) {
  RecordOptions options;
  options.filters = {{"filter 0x1000/0x80 @/opt/../opt/x, tracestop 4096/16@/opt/y", 0}};
  const auto implied = choose("", options);
  ASSERT_TRUE(implied) << implied.error().message();
  EXPECT_EQ(implied->unit, UnitKind::kContinuous);
  ASSERT_THAT(implied->leader.filters, SizeIs(2));
  EXPECT_EQ(filter_text(implied->leader.filters[0]), "filter 0x1000/0x80@/opt/x");
  EXPECT_EQ(filter_text(implied->leader.filters[1]), "stop 0x1000/0x10@/opt/y");
  options.filters[0].event_bytes = 20;
  EXPECT_THAT(choose("{intel_pt//u,faults}", options)->leader.filters, SizeIs(2));
  options.filters[0].text = "filter main @/bin/x";
  EXPECT_THAT(refusal("{intel_pt//u,faults}", options), HasSubstr("no symbols"));
}

TEST(EventChoice, WhatTheUnitCountsGoesWithoutAddressFilters) {
  RecordOptions options;
  options.filters = {{"filter 0x1000/0x80 @/opt/x", 0}};
  for (const char* event : {"branches:u", "faults,instructions:u", "{intel_pt//u,branches:u}",
                            "{intel_pt//u,faults:u,instructions:u}:S"}) {
    options.period = 1;
    EXPECT_THAT(refusal(event, options), HasSubstr("can't do that where it filters")) << event;
    options.event = event;
    EXPECT_FALSE(choose_events(options, machine(true))) << event << " with hardware counters";
  }
  EXPECT_TRUE(choose("faults:u,task-clock:u", options));
  EXPECT_TRUE(choose("cycles:u", options));  // the kernel counts it
  options.filters.clear();
  EXPECT_TRUE(choose("branches:u", options));
}

}  // namespace
}  // namespace auxtrail::record
