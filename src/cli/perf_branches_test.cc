// Real programs, recorded: our branches against those that Linux perf decodes from the same file,
// branch by branch.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "analysis/sample_walk.h"
#include "analysis/verification.h"
#include "perfdata/testing/command.h"

namespace auxtrail::cli {
namespace {

using perfdata::testing::CommandOutcome;
using perfdata::testing::ScratchDirectory;

struct Program {
  const char* name;
  const char* needs;  // a file that must be there
  const char* command;
};

void PrintTo(const Program& program, std::ostream* out) { *out << program.name; }

constexpr Program kPrograms[] = {
    {"gzip", "/usr/bin/gzip", "gzip -9 -c input"},
    {"xz", "/usr/bin/xz", "xz -3 -c input"},
    {"perl", "/usr/bin/perl",
     "perl -e 'for my $i (1..400000) { $h{$i % 1000} .= chr($i % 256); $s += length $h{$i % 7} }'"},
    {"bash", "/bin/bash", "bash -c 'for ((i = 0; i < 150000; i++)); do s=${s:0:20}$i; done'"},
};

struct Edge {
  uint64_t from = 0;
  uint64_t to = 0;
};

// "ip => addr" of each branch; lines of ordinary samples have no arrow. Begins of tracing are left
// out: perf tells none for a trace that is on from its PSB.
class PerfBranches {
 public:
  explicit PerfBranches(const std::string& path) : file_(path) {}
  bool next(Edge& edge) {
    for (std::string line; std::getline(file_, line);) {
      const size_t arrow = line.find("=>");
      if (arrow == std::string::npos) continue;
      edge.from = std::strtoull(line.c_str(), nullptr, 16);
      edge.to = std::strtoull(line.c_str() + arrow + 2, nullptr, 16);
      if (edge.from != 0) return true;
    }
    return false;
  }

 private:
  std::ifstream file_;
};

class PerfBranchesTest : public ::testing::TestWithParam<Program> {
 protected:
  void SetUp() override {
    if (!perfdata::testing::have_perf()) GTEST_SKIP() << "Linux perf is not installed";
    if (!std::filesystem::exists(GetParam().needs)) {
      GTEST_SKIP() << GetParam().needs << " is not installed";
    }
    std::filesystem::copy_file(AUXTRAIL_PROGRAM, scratch_.file("input"));
    std::filesystem::resize_file(scratch_.file("input"), 2'000'000);
  }
  ScratchDirectory scratch_;
};

TEST_P(PerfBranchesTest, SameBranches) {
  const CommandOutcome recorded = scratch_.run(fmt::format(
      "'{}' record -F 400 -o x.data -- {} > output", AUXTRAIL_PROGRAM, GetParam().command));
  ASSERT_EQ(recorded.status, 0) << recorded.err;
  const CommandOutcome perf =
      scratch_.run("perf script -i x.data --itrace=be -F ip,addr > branches.txt");
  ASSERT_EQ(perf.status, 0) << perf.err;
  EXPECT_EQ(perf.err.find("error"), std::string::npos) << perf.err;

  auto recording = analysis::Recording::open(scratch_.file("x.data"));
  ASSERT_TRUE(recording) << recording.error().message();
  PerfBranches theirs(scratch_.file("branches.txt"));
  analysis::Verification verification;
  uint64_t compared = 0;
  uint64_t differences = 0;
  analysis::SampleWalk walk(*recording);
  walk.run([&](const analysis::WalkedSample& sample) {
    verification.add(sample);
    for (const decode::Branch& branch : sample.history.branches()) {
      if (branch.kind == decode::BranchKind::kTraceBegin) continue;
      Edge edge;
      const bool same = theirs.next(edge) && edge.from == branch.from && edge.to == branch.to;
      ++compared;
      if (same) continue;
      ++differences;
      ADD_FAILURE() << fmt::format(
          "branch {} of the file, in the sample at {:#x}: we {:#x} => "
          "{:#x}, perf {:#x} => {:#x}",
          compared, sample.record.file_offset, branch.from, branch.to, edge.from, edge.to);
      return false;
    }
    return true;
  });
  Edge more;
  EXPECT_TRUE(differences != 0 || !theirs.next(more)) << "perf has more branches";
  EXPECT_TRUE(verification.ok());
  EXPECT_GT(verification.samples_with_aux, 5u);
  EXPECT_GT(compared, 2000u);
}

// The text of `script` with branch stacks, to the byte.
TEST_P(PerfBranchesTest, SameBranchStackText) {
  const CommandOutcome recorded = scratch_.run(fmt::format(
      "'{}' record -F 400 -o x.data -- {} > output", AUXTRAIL_PROGRAM, GetParam().command));
  ASSERT_EQ(recorded.status, 0) << recorded.err;
  for (const char* fields : {"ip,brstack", "comm,tid,time,ip,brstack"}) {
    const CommandOutcome same = scratch_.run(
        fmt::format("perf script -i x.data --itrace=L5 -F {0} > perf.txt && "
                    "'{1}' script -i x.data -F {0} --last 5 > ours.txt && cmp perf.txt ours.txt",
                    fields, AUXTRAIL_PROGRAM));
    EXPECT_EQ(same.status, 0) << fields << ": " << same.out << same.err;
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, PerfBranchesTest, ::testing::ValuesIn(kPrograms),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace auxtrail::cli
