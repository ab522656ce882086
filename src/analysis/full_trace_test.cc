// Full trace and snapshots: every branch of every thread, once, in order.
#include "analysis/full_trace.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>

#include "abi/side_band_build.h"
#include "analysis/sample_walk.h"
#include "analysis/testing/traced_file.h"
#include "perfdata/testing/command.h"
#include "perfdata/testing/synthetic.h"

namespace auxtrail::analysis {
namespace {

using decode::Branch;
using decode::BranchKind;
using perfdata::testing::kPid;
using ::testing::Contains;
using testing::full_trace_file;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kTracedInstructions;
using testing::kTracedTaken;
using testing::TracedBuffer;
using testing::TracedThread;

// What came out, by thread.
class Collector : public TraceVisitor {
 public:
  void on_branch(const TracePosition& position, const Branch& branch) override {
    branches[position.tid].push_back(branch);
    times.push_back(position.time_ns);
    EXPECT_EQ(position.pid, static_cast<int32_t>(kPid));
    EXPECT_NE(position.code.find(branch.from != 0 ? branch.from : branch.to), nullptr);
  }
  void on_block(const TracePosition& position, const decode::Block& block) override {
    instructions[position.tid] += block.instructions;
  }
  [[nodiscard]] bool wants_more() const override { return times.size() < limit; }

  std::map<int32_t, std::vector<Branch>> branches;
  std::map<int32_t, uint64_t> instructions;
  std::vector<uint64_t> times;
  size_t limit = ~size_t{0};
};

std::vector<Branch> runs(size_t count) {
  std::vector<Branch> all;
  const auto one = testing::traced_branches();
  for (size_t i = 0; i < count; ++i) all.insert(all.end(), one.begin(), one.end());
  return all;
}

template <class... More>
std::vector<TracedBuffer> together(std::vector<TracedBuffer> first, const More&... more) {
  (first.insert(first.end(), more.begin(), more.end()), ...);
  return first;
}

struct Walked {
  Collector collector;
  WalkStatistics statistics;
  std::vector<std::string> messages;
  size_t samples = 0;
};

void walk_file(const std::vector<std::byte>& file, Walked& walked) {
  auto recording = Recording::from_bytes(file, "test");
  ASSERT_TRUE(recording) << recording.error().message();
  SampleWalk walk(*recording);
  walk.run(
      [&](const WalkedSample&) {
        ++walked.samples;
        return true;
      },
      walked.collector);
  walked.statistics = walk.statistics();
  walked.messages = walk.messages();
}

TEST(FullTraceTest, OneThread) {
  const TracedThread thread{kPid};
  for (const size_t buffer_bytes : {8UL, 64UL, 1000UL, 1UL << 20}) {
    const auto file = full_trace_file(testing::full_trace(thread, 0, buffer_bytes));
    Walked walked;
    walk_file(file, walked);
    EXPECT_EQ(walked.collector.branches[kPid], runs(thread.rounds)) << buffer_bytes;
    EXPECT_EQ(walked.collector.instructions[kPid], thread.rounds * kTracedInstructions);
    EXPECT_EQ(walked.statistics.traced.branches, thread.rounds * kTracedTaken);
    EXPECT_EQ(walked.statistics.traced.error_count(), 0U);
    EXPECT_EQ(walked.statistics.traced_queues, 1U);
    EXPECT_EQ(walked.statistics.queues.gaps, 0U);
    EXPECT_THAT(walked.messages, IsEmpty());
  }
}

// Two threads at the same time, one much busier: by time, as exactly as the PSBs tell.
TEST(FullTraceTest, ThreadsAreMergedByTime) {
  const TracedThread busy{kPid, 1'000'000, 100, 1000, 4};
  const TracedThread lazy{kPid + 1, 1'000'000, 2000, 50, 1};
  const auto file = full_trace_file(
      together(testing::full_trace(busy, 0, 512), testing::full_trace(lazy, 7, 64)));
  Walked walked;
  walk_file(file, walked);
  EXPECT_EQ(walked.collector.branches[kPid], runs(busy.rounds));
  EXPECT_EQ(walked.collector.branches[kPid + 1], runs(lazy.rounds));
  uint64_t newest = 0;
  for (const uint64_t time_ns : walked.collector.times) {
    // 64 blocks are some six rounds.
    ASSERT_GE(time_ns + 8 * lazy.step_ns, newest);
    newest = std::max(newest, time_ns);
  }
  EXPECT_EQ(newest, 1'000'000 + 996 * 100);
}

TEST(FullTraceTest, BranchesComeBeforeLaterSamples) {
  const TracedThread thread{kPid, 1'000'000, 1000, 100, 1};
  const auto file = full_trace_file(testing::full_trace(thread, 0, 512),
                                    {{testing::traced_code().end, 1'050'500, {}, kPid}});
  auto recording = Recording::from_bytes(file, "test");
  ASSERT_TRUE(recording);
  SampleWalk walk(*recording);
  Collector collector;
  size_t before = 0;
  walk.run(
      [&](const WalkedSample&) {
        before = collector.branches[kPid].size();
        return true;
      },
      collector);
  const size_t per_round = testing::traced_branches().size();
  EXPECT_GE(before, 51 * per_round);
  EXPECT_LE(before, 60 * per_round);
  EXPECT_EQ(collector.branches[kPid].size(), 100 * per_round);
}

TEST(FullTraceTest, LostRecordsAreGapsAndTheRestDecodes) {
  const TracedThread thread{kPid};
  auto buffers = testing::full_trace(thread, 0, 256);
  const size_t count = buffers.size();
  const uint64_t lost = buffers[7].record.offset - buffers[5].record.offset;
  buffers.erase(buffers.begin() + 5, buffers.begin() + 7);
  Walked walked;
  walk_file(full_trace_file(buffers), walked);
  EXPECT_EQ(walked.statistics.queues.gaps, 1U);
  EXPECT_NEAR(static_cast<double>(walked.statistics.queues.lost_bytes), static_cast<double>(lost),
              7)
      << "but for the padding of the record before";
  EXPECT_EQ(walked.statistics.queues.buffers, count - 2);
  EXPECT_THAT(walked.messages, Contains(HasSubstr("bytes of trace lost")));
  const size_t most = thread.rounds * kTracedTaken;
  EXPECT_LT(walked.statistics.traced.branches, most);
  EXPECT_GT(walked.statistics.traced.branches, most * 7 / 10);
  EXPECT_EQ(walked.statistics.traced.error_count(), 0U);
}

// Records are padded to 8 bytes, even within a packet; offsets count the trace alone.
TEST(FullTraceTest, RecordsMayEndAnywhere) {
  const TracedThread thread{kPid};
  const auto trace = testing::thread_trace(thread);
  std::vector<TracedBuffer> buffers;
  std::mt19937 random(3);
  for (size_t at = 0; at < trace.size();) {
    const size_t size = std::min<size_t>(1 + random() % 100, trace.size() - at);
    const auto part = std::span(trace).subspan(at, size);
    buffers.push_back({{size, at, 1, 0, kPid, 0}, {part.begin(), part.end()}});
    at += size;
  }
  Walked walked;
  walk_file(full_trace_file(buffers), walked);
  EXPECT_EQ(walked.collector.branches[kPid], runs(thread.rounds));
  EXPECT_EQ(walked.statistics.queues.gaps, 0U);
  EXPECT_EQ(walked.statistics.traced.error_count(), 0U);
}

TEST(FullTraceTest, OverlappingSnapshotsAreDecodedOnce) {
  const TracedThread thread{kPid};
  for (const size_t every : {64UL, 256UL, 504UL}) {
    const auto file = full_trace_file(testing::snapshots(thread, 0, 1024, every), {}, true);
    Walked walked;
    walk_file(file, walked);
    EXPECT_EQ(walked.collector.branches[kPid], runs(thread.rounds)) << every;
    EXPECT_EQ(walked.statistics.queues.gaps, 0U) << every;
    EXPECT_GT(walked.statistics.queues.overlap_bytes, 0U) << every;
    EXPECT_EQ(walked.statistics.traced.error_count(), 0U);
  }
}

TEST(FullTraceTest, SnapshotsThatDoNotMeetLeaveGaps) {
  TracedThread thread{kPid};
  thread.rounds = 1000;
  Walked walked;
  walk_file(full_trace_file(testing::snapshots(thread, 0, 512, 1504), {}, true), walked);
  EXPECT_GT(walked.statistics.queues.gaps, 1U);
  EXPECT_EQ(walked.statistics.queues.overlap_bytes, 0U);
  EXPECT_GT(walked.statistics.traced.branches, 0U);
  EXPECT_LT(walked.statistics.traced.branches, thread.rounds * kTracedTaken / 2);
  EXPECT_LE(walked.statistics.traced.error_count(), walked.statistics.queues.gaps + 1)
      << "no more than where each snapshot ends";
}

TEST(FullTraceTest, StopsWhenTheVisitorHasEnough) {
  TracedThread thread{kPid};
  thread.rounds = 2000;
  const auto file = full_trace_file(testing::full_trace(thread, 0, 4096));
  Walked walked;
  walked.collector.limit = 10;
  walk_file(file, walked);
  EXPECT_LT(walked.collector.times.size(), 5000U);
}

TEST(FullTraceTest, NothingIsDecodedWithoutDecoding) {
  const auto file = full_trace_file(testing::full_trace({kPid}, 0, 4096));
  auto recording = Recording::from_bytes(file, "test");
  SampleWalk walk(*recording, {.decode = false});
  Collector collector;
  walk.run([](const WalkedSample&) { return true; }, collector);
  EXPECT_THAT(collector.times, IsEmpty());
  EXPECT_THAT(walk.messages(), IsEmpty());
}

// ---- queues of CPUs ----

void append_switch_in(ByteWriter& out, const abi::SampleFormat& format, uint32_t pid, uint32_t cpu,
                      uint64_t time_ns) {
  abi::SampleId id;
  id.pid = id.tid = pid;
  id.cpu = cpu;
  id.time_ns = time_ns;
  id.id = perfdata::testing::kLeaderId;
  const size_t start = out.size();
  out.write(perf_event_header{PERF_RECORD_SWITCH, 0, 0});
  abi::append_trailer(out, format, id);
  const auto size = static_cast<uint16_t>(out.size() - start);
  std::memcpy(out.buffer().data() + start + 6, &size, sizeof(size));
}

// Two processes one after the other on CPU 2, while a third is on CPU 3: who ran is told by SWITCH
// records.
TEST(FullTraceTest, ACpusQueueFollowsItsSwitches) {
  constexpr uint32_t kOther = kPid + 1;
  constexpr uint32_t kNoTid = ~uint32_t{0};
  TracedThread first{kPid, 1'000'000, 1000, 100, 1};
  TracedThread second{kOther, 2'000'000, 1000, 50, 1};
  auto trace = testing::thread_trace(first);
  const auto more = testing::thread_trace(second);
  trace.insert(trace.end(), more.begin(), more.end());
  const auto file =
      testing::full_trace_file({{{trace.size(), 0, 1, 0, kNoTid, 2}, trace}}, {}, false,
                               [](ByteWriter& out, const abi::SampleFormat& format) {
                                 abi::TaskRecord fork;
                                 fork.id.id = perfdata::testing::kLeaderId;
                                 fork.pid = fork.tid = kOther;
                                 fork.parent_pid = fork.parent_tid = kPid;
                                 abi::append_fork(out, format, fork);
                                 append_switch_in(out, format, kPid, 2, 900'000);
                                 append_switch_in(out, format, 77, 3, 1'500'000);
                                 append_switch_in(out, format, kOther, 2, 1'999'000);
                               });
  auto recording = Recording::from_bytes(file, "test");
  ASSERT_TRUE(recording) << recording.error().message();
  struct ByProcess : TraceVisitor {
    void on_branch(const TracePosition& position, const Branch& branch) override {
      EXPECT_EQ(position.pid, position.tid);
      EXPECT_EQ(position.cpu, 2);
      branches[position.pid].push_back(branch);
    }
    std::map<int32_t, std::vector<Branch>> branches;
  } visitor;
  SampleWalk walk(*recording);
  walk.run([](const WalkedSample&) { return true; }, visitor);
  EXPECT_EQ(walk.statistics().traced.error_count(), 0U);
  EXPECT_EQ(visitor.branches.size(), 2U);
  EXPECT_EQ(visitor.branches[kPid], runs(first.rounds));
  EXPECT_EQ(visitor.branches[kOther], runs(second.rounds));
}

// ---- Linux perf ----

// "tid ip => addr" lines by thread.
std::map<int32_t, std::vector<std::pair<uint64_t, uint64_t>>> perf_branches(
    const std::string& text) {
  std::map<int32_t, std::vector<std::pair<uint64_t, uint64_t>>> branches;
  for (const std::string& line : perfdata::testing::lines_of(text)) {
    const size_t arrow = line.find("=>");
    if (arrow == std::string::npos) continue;
    char* rest = nullptr;
    const auto tid = static_cast<int32_t>(std::strtol(line.c_str(), &rest, 10));
    branches[tid].emplace_back(std::strtoull(rest, nullptr, 16),
                               std::strtoull(line.c_str() + arrow + 2, nullptr, 16));
  }
  return branches;
}

// Of a recorder that was killed: no index of AUXTRACE records.
void drop_auxtrace_index(std::vector<std::byte>& file) {
  const auto word = [&file](size_t offset) {
    uint64_t value = 0;
    std::memcpy(&value, file.data() + offset, sizeof(value));
    return value;
  };
  constexpr unsigned kBit = static_cast<unsigned>(perfdata::Feature::kAuxtrace);
  const uint64_t before = word(72) & ((uint64_t{1} << kBit) - 1);
  const size_t table = word(40) + word(48);
  const size_t section = table + 16 * static_cast<size_t>(std::popcount(before));
  const uint64_t none = 0;
  ASSERT_GT(word(word(section)), 0U);
  std::memcpy(file.data() + word(section), &none, sizeof(none));
}

TEST(FullTraceTest, SameBranchesAsPerf) {
  if (!perfdata::testing::have_perf()) GTEST_SKIP() << "Linux perf is not installed";
  const perfdata::testing::ScratchDirectory scratch;
  const TracedThread first{kPid, 1'000'000, 1000, 200, 8};
  const TracedThread second{kPid + 1, 1'100'000, 3000, 50, 2};
  const auto buffers =
      together(testing::full_trace(first, 0, 2048), testing::full_trace(second, 1, 256));
  auto file = full_trace_file(buffers);
  for (const bool killed : {false, true}) {
    if (killed) drop_auxtrace_index(file);
    perfdata::testing::write_file(scratch.file("x.data"),
                                  {reinterpret_cast<const char*>(file.data()), file.size()});
    const auto perf = scratch.run("perf script -i x.data --itrace=be -F tid,ip,addr");
    ASSERT_EQ(perf.status, 0) << perf.err;
    EXPECT_EQ(perf.err.find("error"), std::string::npos) << perf.err;
    const auto theirs = perf_branches(perf.out);
    Walked walked;
    walk_file(file, walked);
    ASSERT_EQ(theirs.size(), 2U) << perf.out.substr(0, 1000);
    for (const auto& [tid, branches] : walked.collector.branches) {
      std::vector<std::pair<uint64_t, uint64_t>> ours;
      for (const Branch& branch : branches) ours.emplace_back(branch.from, branch.to);
      EXPECT_EQ(ours, theirs.at(tid)) << tid;
    }
  }
}

}  // namespace
}  // namespace auxtrail::analysis
