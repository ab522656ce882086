// Rows of profiles over samples whose history is known.
#include "analysis/profile.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "analysis/testing/traced_file.h"
#include "perfdata/testing/synthetic.h"

namespace auxtrail::analysis {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kSamples = 4;
constexpr uint64_t kPeriod = 1000000;

EventProfile profile_of(std::string_view keys, const std::vector<testing::TracedSample>& samples,
                        bool mapped = true, const std::string& version = "") {
  const auto file = testing::traced_file(samples, mapped, version);
  auto recording = Recording::from_bytes(file, "test");
  EXPECT_TRUE(recording);
  Profile profile(*recording, *parse_sort_keys(keys));
  SampleWalk walk(*recording, {.blocks = true});
  walk.run([&profile](const WalkedSample& sample) {
    profile.add(sample);
    return true;
  });
  auto events = profile.events();
  EXPECT_EQ(events.size(), 1u);
  EventProfile result = std::move(events.front());
  result.event = nullptr;  // ends with the recording
  return result;
}

std::string own_name() { return std::filesystem::read_symlink("/proc/self/exe").filename(); }

// The number of the line of traced_code.S that holds `text`.
std::string line_with(const std::string& text) {
  std::ifstream source(AUXTRAIL_TRACED_SOURCE);
  int number = 1;
  for (std::string line; std::getline(source, line); ++number) {
    if (line.find(text) != std::string::npos) return "traced_code.S:" + std::to_string(number);
  }
  return "no such line";
}

const ProfileRow* find_row(const EventProfile& profile, const std::string& key) {
  for (const ProfileRow& row : profile.rows) {
    if (row.keys.front() == key) return &row;
  }
  return nullptr;
}

TEST(ProfileTest, ByFunctionAndFile) {
  const EventProfile profile = profile_of("sym,dso", testing::traced_samples(kSamples));
  EXPECT_EQ(profile.samples_with_history, kSamples);
  EXPECT_EQ(profile.total.branches, kSamples * testing::kTracedTaken);
  EXPECT_EQ(profile.total.instructions, kSamples * testing::kTracedInstructions);
  ASSERT_EQ(profile.rows.size(), 2u);
  const ProfileRow& main = profile.rows[0];
  EXPECT_THAT(main.keys, ElementsAre("traced_main", own_name()));
  EXPECT_EQ(main.counts.samples, kSamples);
  EXPECT_EQ(main.counts.weight, kSamples * kPeriod);
  EXPECT_EQ(main.counts.branches, kSamples * testing::kTracedTakenFromMain);
  EXPECT_EQ(main.counts.instructions, kSamples * testing::kTracedInMain);
  const ProfileRow& leaf = profile.rows[1];
  EXPECT_THAT(leaf.keys, ElementsAre("traced_leaf", own_name()));
  EXPECT_EQ(leaf.counts.samples, 0u);
  EXPECT_EQ(leaf.counts.branches,
            kSamples * (testing::kTracedTaken - testing::kTracedTakenFromMain));
  EXPECT_EQ(leaf.counts.instructions,
            kSamples * (testing::kTracedInstructions - testing::kTracedInMain));
}

TEST(ProfileTest, ByLine) {
  const EventProfile profile = profile_of("line", testing::traced_samples(kSamples));
  const ProfileRow* jnz = find_row(profile, line_with("jnz "));
  ASSERT_NE(jnz, nullptr);
  EXPECT_EQ(jnz->counts.branches, kSamples * 2);
  const ProfileRow* call = find_row(profile, line_with("call "));
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call->counts.branches, kSamples * 3);
  const ProfileRow* nop = find_row(profile, profile.rows.front().keys.front());
  EXPECT_EQ(nop->counts.samples, kSamples);  // all samples lie at one line
}

// The software unit's windows begin at the overflow; the sample is where they were full.
TEST(ProfileTest, SoftwareUnitsSamplesCountWhereTheEventOverflowed) {
  const auto samples = testing::traced_samples(kSamples);
  const EventProfile hardware = profile_of("line", samples, true, "6.1.187");
  EXPECT_EQ(find_row(hardware, line_with("mov "))->counts.samples, 0u);
  const EventProfile software = profile_of("line", samples, true, "auxtrail 0.1.0");
  EXPECT_EQ(find_row(software, line_with("mov "))->counts.samples, kSamples);
}

TEST(ProfileTest, ByThread) {
  const EventProfile profile = profile_of("comm,pid,tid", testing::traced_samples(kSamples));
  const std::string pid = std::to_string(perfdata::testing::kPid);
  ASSERT_EQ(profile.rows.size(), 1u);
  EXPECT_THAT(profile.rows[0].keys, ElementsAre("traced", pid, pid));
  EXPECT_EQ(profile.rows[0].counts.branches, kSamples * testing::kTracedTaken);
}

TEST(ProfileTest, UnknownCodeIsOneRow) {
  const EventProfile profile = profile_of("dso,sym", testing::traced_samples(kSamples), false);
  ASSERT_EQ(profile.rows.size(), 1u);
  EXPECT_THAT(profile.rows[0].keys, ElementsAre("[unknown]", "[unknown]"));
  EXPECT_EQ(profile.rows[0].counts.samples, kSamples);
}

// Whatever the rows, nothing gets lost between them.
TEST(ProfileTest, RowsAddUpToTheTotal) {
  auto samples = testing::traced_samples(kSamples);
  samples[1].ip = testing::traced_code().leaf;
  samples[2].aux.clear();
  for (const char* keys : {"sym", "dso", "line", "comm", "tid,sym,line", "pid,dso"}) {
    const EventProfile profile = profile_of(keys, samples);
    ProfileCounts sum;
    for (const ProfileRow& row : profile.rows) sum += row.counts;
    EXPECT_EQ(sum.samples, kSamples) << keys;
    EXPECT_EQ(sum.weight, kSamples * kPeriod) << keys;
    EXPECT_EQ(sum.branches, 3 * testing::kTracedTaken) << keys;
    EXPECT_EQ(sum.instructions, 3 * testing::kTracedInstructions) << keys;
    EXPECT_EQ(profile.samples_with_history, 3u) << keys;
  }
}

TEST(SortKeysTest, NamesOfPerf) {
  EXPECT_THAT(*parse_sort_keys("symbol,srcline,comm"),
              ElementsAre(SortKey::kSymbol, SortKey::kLine, SortKey::kComm));
  EXPECT_THAT(*parse_sort_keys("dso,dso,sym"), ElementsAre(SortKey::kDso, SortKey::kSymbol));
}

TEST(SortKeysTest, WrongNamesAreRefused) {
  for (const char* text : {"", "foo", "sym,", ",sym", "sym,,dso", "sym dso"}) {
    EXPECT_FALSE(parse_sort_keys(text)) << text;
  }
}

// Samples of continuous trace: each holds the newest 1 KiB of it, and much of that is in the one
// before.
TEST(ProfileTest, WhatTwoSamplesHoldCountsOnce) {
  const testing::TracedThread thread{perfdata::testing::kPid};
  for (const size_t every : {100UL, 400UL, 800UL}) {
    std::vector<testing::TracedSample> samples;
    for (const auto& snapshot : testing::snapshots(thread, 0, 1024, every)) {
      samples.push_back({testing::traced_code().end, 2'000'000'000 + samples.size(), snapshot.bytes,
                         perfdata::testing::kPid});
    }
    // The same bytes in another thread are another execution.
    samples.push_back(samples.back());
    samples.back().tid += 1;
    const auto file = testing::traced_file(samples);
    auto recording = Recording::from_bytes(file, "test");
    Profile profile(*recording, *parse_sort_keys("tid"));
    SampleWalk walk(*recording, {.blocks = true, .overlaps = true});
    walk.run([&profile](const WalkedSample& sample) {
      profile.add(sample);
      return true;
    });
    const auto rows = profile.events().front().rows;
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].counts.samples, samples.size() - 1);
    EXPECT_EQ(rows[0].counts.branches, thread.rounds * testing::kTracedTaken) << every;
    EXPECT_EQ(rows[0].counts.instructions, thread.rounds * testing::kTracedInstructions) << every;
    EXPECT_GT(rows[1].counts.branches, 0U);
    EXPECT_GT(walk.statistics().overlap_bytes, 0U);
  }
}

// Every instruction and every branch of the trace, by thread.
TEST(ProfileTest, FullTraceCountsEverything) {
  const testing::TracedThread first{perfdata::testing::kPid};
  testing::TracedThread second{perfdata::testing::kPid + 1};
  second.rounds = 7;
  auto buffers = testing::full_trace(first, 0, 256);
  const auto more = testing::full_trace(second, 1, 256);
  buffers.insert(buffers.end(), more.begin(), more.end());
  const auto file = testing::full_trace_file(buffers);
  auto recording = Recording::from_bytes(file, "test");
  ASSERT_TRUE(recording);
  Profile profile(*recording, *parse_sort_keys("tid,sym"));
  SampleWalk(*recording, {.blocks = true}).run([](const WalkedSample&) { return true; }, profile);
  const auto events = profile.events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_TRUE(events[0].full_trace);
  EXPECT_EQ(events[0].event->name, "instructions:u");
  EXPECT_EQ(events[0].total.samples, 0U);
  EXPECT_EQ(events[0].total.weight, 107 * testing::kTracedInstructions);
  EXPECT_EQ(events[0].total.branches, 107 * testing::kTracedTaken);
  ASSERT_EQ(events[0].rows.size(), 4U);
  const ProfileRow& main = events[0].rows[0];
  EXPECT_THAT(main.keys, ElementsAre(std::to_string(perfdata::testing::kPid), "traced_main"));
  EXPECT_EQ(main.counts.instructions, first.rounds * testing::kTracedInMain);
  EXPECT_EQ(main.counts.branches, first.rounds * testing::kTracedTakenFromMain);
  const ProfileRow& leaf = events[0].rows[3];
  EXPECT_THAT(leaf.keys, ElementsAre(std::to_string(perfdata::testing::kPid + 1), "traced_leaf"));
  EXPECT_EQ(leaf.counts.instructions, 7 * (testing::kTracedInstructions - testing::kTracedInMain));
}

}  // namespace
}  // namespace auxtrail::analysis
