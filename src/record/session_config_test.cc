#include "record/session_config.h"

#include <gmock/gmock.h>

#include <ctime>

namespace auxtrail::record {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Without Intel PT.
MachineFacts machine(uint64_t max_rate_hz = 100000) { return {{false, 10}, max_rate_hz}; }

TEST(SessionConfig, Defaults) {
  const auto plan = plan_session({}, machine());
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->warnings, IsEmpty());
  EXPECT_EQ(plan->event_name, "task-clock:u");
  const channel::SessionConfig& config = plan->config;
  EXPECT_EQ(config.samplers[0].attr.sample_type, 0x110187U);  // the layout that Linux perf decodes
  EXPECT_EQ(config.leader.sample_type, 0x10087U);
  EXPECT_EQ(config.leader.type, 10U);
  EXPECT_EQ(config.leader.config, 0x2401U);
  EXPECT_EQ(config.samplers[0].attr.aux_sample_size, 4096U);
  EXPECT_EQ(config.samplers[0].attr.sample_freq, 999U);
  EXPECT_EQ(config.samplers[0].attr.freq, 1U);
  EXPECT_EQ(config.samplers[0].trigger.sample_freq, 999U);
  EXPECT_EQ(config.samplers[0].trigger.sigtrap, 1U);
  EXPECT_EQ(config.samplers[0].trigger.remove_on_exec, 1U);
  EXPECT_EQ(config.samplers[0].trigger.inherit_thread, 1U);
  EXPECT_EQ(config.samplers[0].trigger.disabled, 0U);
  EXPECT_EQ(config.data_pages * channel::kPageBytes, 512U << 10);
  EXPECT_EQ(config.aux_pages * channel::kPageBytes, 64U << 10);
  for (const auto& event : file_events(*plan)) {
    EXPECT_EQ(event.attr.size, 128U);  // perf 6.1 refuses larger ones
    EXPECT_EQ(event.attr.sample_id_all, 1U);
    EXPECT_EQ(event.attr.use_clockid, 1U);
    EXPECT_EQ(event.attr.clockid, CLOCK_MONOTONIC);
    EXPECT_THAT(event.ids, SizeIs(1));
  }
}

TEST(SessionConfig, PeriodWinsOverFrequency) {
  RecordOptions options;
  options.frequency_hz = 5000;
  options.period = 123456;
  const auto plan = plan_session(options, machine());
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->config.samplers[0].trigger.freq, 0U);
  EXPECT_EQ(plan->config.samplers[0].trigger.sample_period, 123456U);
}

TEST(SessionConfig, FrequencyIsThrottledWithAWarning) {
  struct Limit {
    uint64_t hz;
    const char* whose;
  };
  for (const Limit& limit : {Limit{5000, "perf_event_max_sample_rate"},
                             Limit{kMaxUnitRateHz, "the trace unit can serve no more"}}) {
    RecordOptions options;
    options.frequency_hz = limit.hz + 1;
    const auto plan = plan_session(options, machine(limit.hz));
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->config.samplers[0].trigger.sample_freq, limit.hz);
    ASSERT_THAT(plan->warnings, SizeIs(1));
    EXPECT_THAT(plan->warnings[0], HasSubstr(limit.whose));
    options.frequency_max = true;
    EXPECT_EQ(plan_session(options, machine(limit.hz))->config.samplers[0].trigger.sample_freq,
              limit.hz);
  }
}

TEST(SessionConfig, NoInheritSamplesOneThread) {
  RecordOptions options;
  options.inherit = false;
  const auto plan = plan_session(options, machine());
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->config.samplers[0].trigger.inherit, 0U);
  EXPECT_EQ(plan->config.samplers[0].trigger.inherit_thread,
            0U);  // the kernel refuses it without inherit
  EXPECT_EQ(plan->config.inherit_children, 0U);
}

TEST(SessionConfig, AClocksPeriodIsNoShorterThanTheUnitCanServe) {
  RecordOptions options;
  options.period = 1;
  const auto plan = plan_session(options, machine());
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->config.samplers[0].trigger.sample_period, 1000000000 / kMaxUnitRateHz);
  EXPECT_EQ(plan->config.samplers[0].attr.sample_period, 1000000000 / kMaxUnitRateHz);
  EXPECT_EQ(plan->warnings.size(), 1U);
  options.event = "page-faults:u";  // no time: every fault may be wanted
  EXPECT_EQ(plan_session(options, machine())->config.samplers[0].trigger.sample_period, 1U);
}

TEST(SessionConfig, RefusesSizesThatCannotWork) {
  RecordOptions options;
  for (const uint32_t bytes : {63U, 159U, kMaxAuxSampleBytes + 1}) {
    options.aux_sample_bytes = bytes;
    EXPECT_FALSE(plan_session(options, machine())) << bytes;
  }
  options.aux_sample_bytes = 4096;
  options.data_pages = 1;
  EXPECT_FALSE(plan_session(options, machine()));
  options.data_pages = 2;
  EXPECT_TRUE(plan_session(options, machine()));
  options.frequency_hz = 0;
  EXPECT_FALSE(plan_session(options, machine()));
}

TEST(SessionConfig, ContinuousTraceHasAllEventsAndTheFatalSignal) {
  RecordOptions options;
  options.event = "{faults:u,task-clock/aux-sample-size=8192/u}";
  const auto plan = plan_session(options, machine());
  ASSERT_TRUE(plan) << plan.error().message();
  const channel::SessionConfig& config = plan->config;
  EXPECT_EQ(config.continuous, 1U);
  EXPECT_EQ(config.psb_period_bytes, 2048U);
  ASSERT_EQ(config.sampler_count, 3U);
  EXPECT_EQ(config.samplers[0].trigger.config, PERF_COUNT_SW_PAGE_FAULTS);
  EXPECT_EQ(config.samplers[1].attr.aux_sample_size, 8192U);
  EXPECT_EQ(config.samplers[2].kind, channel::Sampler::kFatalSignal);
  EXPECT_EQ(config.samplers[2].attr.aux_sample_size, 8192U);
  const auto events = file_events(*plan);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[3].name, "fatal-signal");
  EXPECT_EQ(events[3].ids, std::vector<uint64_t>{kSamplerId + 2});
}

TEST(SessionConfig, FullTraceNeedsNoSampler) {
  RecordOptions options;
  options.event = "intel_pt//u";
  const auto plan = plan_session(options, machine());
  ASSERT_TRUE(plan) << plan.error().message();
  const channel::SessionConfig& config = plan->config;
  EXPECT_EQ(config.mode, channel::TraceMode::kFull);
  EXPECT_EQ(config.psb_period_bytes, 16384U);  // as perf has it
  ASSERT_EQ(config.sampler_count, 1U);
  EXPECT_EQ(config.samplers[0].kind, channel::Sampler::kFatalSignal);
  EXPECT_EQ(config.samplers[0].attr.sample_type & PERF_SAMPLE_AUX, 0U);
  EXPECT_EQ(config.entry.config, PERF_COUNT_SW_TASK_CLOCK);
  EXPECT_EQ(config.entry.sigtrap, 1U);
}

TEST(SessionConfig, SnapshotsAndSamplesBesideFullTrace) {
  RecordOptions options;
  options.event = "{intel_pt//u,faults:u}";
  auto plan = plan_session(options, machine());
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->config.mode, channel::TraceMode::kFull);
  EXPECT_EQ(plan->config.sampler_count, 2U);
  EXPECT_EQ(plan->config.samplers[0].attr.sample_type & PERF_SAMPLE_AUX, 0U);
  options.event = "intel_pt//u";
  options.snapshot = SnapshotOptions{};
  plan = plan_session(options, machine());
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->config.mode, channel::TraceMode::kSnapshot);
}

TEST(SessionConfig, TheUnitCountsBranchesAndInstructions) {
  RecordOptions options;
  options.event = "branches:u,instructions/period=3000/u";
  options.period = 100000;
  const auto plan = plan_session(options, machine());
  ASSERT_TRUE(plan) << plan.error().message();
  const channel::SessionConfig& config = plan->config;
  EXPECT_EQ(config.continuous, 1U);
  EXPECT_EQ(config.samplers[0].kind, channel::Sampler::kBranches);
  EXPECT_EQ(config.samplers[0].attr.sample_period, 100000U);
  EXPECT_EQ(config.samplers[0].trigger.sigtrap, 0U);  // nothing is opened
  EXPECT_EQ(config.samplers[1].kind, channel::Sampler::kInstructions);
  EXPECT_EQ(config.samplers[1].attr.sample_period, 3000U);
  EXPECT_EQ(config.samplers[2].kind, channel::Sampler::kFatalSignal);
  EXPECT_EQ(plan->event_name, "");
  EXPECT_EQ(plan->counted_name, "branches:u, instructions:u");
}

TEST(SessionConfig, AGroupReadsWhatTheUnitKnows) {
  RecordOptions options;
  options.event = "{intel_pt//u,faults:u,branches:u,task-clock:u}:S,instructions:u";
  options.period = 5;
  const auto plan = plan_session(options, machine());
  ASSERT_TRUE(plan) << plan.error().message();
  const channel::SessionConfig& config = plan->config;
  ASSERT_EQ(config.sampler_count, 5U);
  EXPECT_EQ(config.samplers[0].kind, channel::Sampler::kKernelEvent);
  EXPECT_EQ(config.samplers[0].trigger.sample_type, 0U);
  EXPECT_EQ(config.samplers[1].kind, channel::Sampler::kBranches);
  EXPECT_EQ(config.samplers[1].attr.sample_period, 0U);
  EXPECT_EQ(config.samplers[2].kind, channel::Sampler::kNone);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_NE(config.samplers[i].attr.sample_type & PERF_SAMPLE_READ, 0U);
    EXPECT_EQ(config.samplers[i].group, config.samplers[0].group);
  }
  EXPECT_NE(config.samplers[0].group, 0U);
  EXPECT_EQ(config.samplers[3].attr.sample_type & PERF_SAMPLE_READ, 0U);
  EXPECT_EQ(config.samplers[3].group, 0U);
}

TEST(SessionConfig, ValuesAreThoseOfOneThread) {
  RecordOptions options;
  options.event = "branches:uS";
  const auto plan = plan_session(options, machine());
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->config.samplers[0].attr.read_format, static_cast<uint64_t>(PERF_FORMAT_ID));
  EXPECT_EQ(plan->config.samplers[0].attr.inherit, 0U);
  ASSERT_EQ(plan->warnings.size(), 1U);
  EXPECT_THAT(plan->warnings[0], HasSubstr("first thread only"));
}

TEST(SessionConfig, CountsThatOnlyTheKernelKnowsAreRefused) {
  for (const char* event : {"{branches:u,faults:u}:S", "{faults/freq=99/u,branches:u}:S"}) {
    RecordOptions options;
    options.event = event;
    options.period = 1;
    const auto plan = plan_session(options, machine());
    ASSERT_FALSE(plan) << event;
    EXPECT_THAT(plan.error().message(), HasSubstr("can't be read")) << event;
  }
}

TEST(SessionConfig, ManyEvents) {
  RecordOptions options;
  for (int i = 0; i < 31; ++i) options.event += i == 0 ? "faults:u" : ",faults:u";
  EXPECT_TRUE(plan_session(options, machine()));
  options.event += ",faults:u";
  const auto plan = plan_session(options, machine());
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(), HasSubstr("31"));
}

RecordOptions filtered(const std::string& text) {
  RecordOptions options;
  options.event = "intel_pt//u";
  options.filters.push_back({text, options.event.size()});
  return options;
}

TEST(SessionConfig, AddressFiltersGoToTheUnitAsTheKernelWouldHaveThem) {
  const auto plan = plan_session(
      filtered("filter 0x1000/0x80 @/nowhere/x, tracestop 32/16 @/nowhere/y"), machine());
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(std::string(plan->config.filters, plan->config.filter_bytes),
            "filter 0x1000/0x80@/nowhere/x,stop 0x20/0x10@/nowhere/y");
  EXPECT_EQ(plan->config.continuous, 1U);
}

TEST(SessionConfig, NoMoreAddressFiltersThanTheUnitHasRanges) {
  std::string text = "filter 0x1000/0x80@/x";
  for (int i = 0; i < 3; ++i) text += ",filter 0x1000/0x80@/x";
  EXPECT_TRUE(plan_session(filtered(text), machine()));
  const auto five = plan_session(filtered(text + ",tracestop 0x1000/0x80@/x"), machine());
  ASSERT_FALSE(five);
  EXPECT_THAT(five.error().message(), HasSubstr("4 address ranges"));
}

TEST(SessionConfig, PathsOfAddressFiltersHaveALimit) {
  const std::string longest = "/" + std::string(channel::kMaxFilterPathBytes - 1, 'x');
  EXPECT_TRUE(plan_session(filtered("filter 0x1000/0x80@" + longest), machine()));
  const auto longer = plan_session(filtered("filter 0x1000/0x80@" + longest + "x"), machine());
  ASSERT_FALSE(longer);
  EXPECT_THAT(longer.error().message(), HasSubstr("too long"));
}

TEST(SessionConfig, TriggerIsTriedOnTheMachine) {
  RecordOptions options;
  options.event = "r1234567890";
  auto plan = plan_session(options, machine());
  ASSERT_TRUE(plan);
  if (probe_hardware_counter() == 0) GTEST_SKIP() << "this machine has hardware counters";
  const auto status = check_trigger(*plan);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("task-clock"));
}

}  // namespace
}  // namespace auxtrail::record
