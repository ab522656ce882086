// The reading commands as a user meets them: exit status, stdout, stderr; and that no damaged file
// makes them crash.
#include "cli/commands.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include "analysis/testing/traced_file.h"
#include "base/unique_fd.h"
#include "cli/testing/run_command.h"
#include "perfdata/reader.h"
#include "perfdata/testing/command.h"
#include "perfdata/testing/synthetic.h"

namespace auxtrail::cli {
namespace {

using analysis::testing::kTracedTaken;
using analysis::testing::traced_file;
using analysis::testing::traced_samples;
using perfdata::testing::ScratchDirectory;
using testing::Command;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Outcome;
using testing::run;
using testing::run_into;

struct Invocation {
  const char* name;
  Command command;
  Arguments options;
};
void PrintTo(const Invocation& invocation, std::ostream* out) { *out << invocation.name; }

const std::vector<Invocation> kInvocations = {
    {"verify", run_verify, {}},
    {"verify_json", run_verify, {"--json"}},
    {"verify_libipt", run_verify, {"--decoder=libipt"}},
    {"report", run_report, {}},
    {"report_libipt", run_report, {"--decoder=libipt"}},
    {"report_json", run_report, {"--json", "--sort", "comm,tid,dso,sym,line"}},
    {"script", run_script, {}},
    {"script_branches", run_script, {"-F", "ip,sym,symoff,dso,brstack,brstacksym,brlist"}},
    {"script_libipt", run_script, {"-F", "ip,brlist", "--decoder=libipt"}},
    {"dump", run_dump, {}},
    {"dump_packets", run_dump, {"--packets", "--records", "--header"}},
};

class CommandsTest : public ::testing::TestWithParam<Invocation> {
 protected:
  std::string write(std::span<const std::byte> bytes) {
    const std::string path = scratch_.file("perf.data");
    perfdata::testing::write_file(path,
                                  {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return path;
  }
  [[nodiscard]] Arguments arguments(const std::string& path) const {
    Arguments words = GetParam().options;
    words.insert(words.end(), {"-i", path});
    return words;
  }
  ScratchDirectory scratch_;
};

TEST_P(CommandsTest, GoodFile) {
  const Outcome outcome = run(GetParam().command, arguments(write(traced_file(traced_samples(3)))));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_FALSE(outcome.out.empty());
  EXPECT_THAT(outcome.err, IsEmpty());
}

// Full trace of two threads, and a sample between.
std::vector<std::byte> full_trace_of_two() {
  using perfdata::testing::kPid;
  auto buffers = analysis::testing::full_trace({kPid}, 0, 500);
  const auto more = analysis::testing::full_trace({kPid + 1}, 1, 300);
  buffers.insert(buffers.end(), more.begin(), more.end());
  return analysis::testing::full_trace_file(
      buffers, {{analysis::testing::traced_code().end, 1'000'050'000, {}, kPid}});
}

TEST_P(CommandsTest, FullTrace) {
  Arguments words = arguments(write(full_trace_of_two()));
  const Outcome outcome = run(GetParam().command, words);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_FALSE(outcome.out.empty());
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST_P(CommandsTest, HelpIsNoError) {
  const Outcome outcome = run(GetParam().command, {"--help"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("--input"));
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST_P(CommandsTest, WrongUsage) {
  for (const Arguments& words : {Arguments{"--no-such-option"}, Arguments{"-i"}}) {
    const Outcome outcome = run(GetParam().command, words);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, HasSubstr("--help"));
  }
}

TEST_P(CommandsTest, BadFiles) {
  const std::string text(200, 'x');
  const std::string no_perf_data = write(std::as_bytes(std::span(text)));
  for (const std::string& path : {scratch_.file("missing"), std::string("/"), no_perf_data}) {
    const Outcome outcome = run(GetParam().command, arguments(path));
    EXPECT_EQ(outcome.status, 1) << path;
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, HasSubstr("auxtrail "));
    EXPECT_THAT(outcome.err, HasSubstr(path));
  }
}

TEST_P(CommandsTest, ABrokenPipeEndsQuietly) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ::close(ends[0]);
  const UniqueFd broken(ends[1]);
  const Outcome outcome =
      run_into(GetParam().command, arguments(write(traced_file(traced_samples(3)))), broken.get());
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST_P(CommandsTest, AFullDiskIsAFailure) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const Outcome outcome =
      run_into(GetParam().command, arguments(write(traced_file(traced_samples(3)))), full.get());
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("No space left"));
}

// A recorder that died leaves such files; whatever is whole is shown.
TEST_P(CommandsTest, TruncatedFiles) {
  for (const auto& file : {traced_file(traced_samples(2)), full_trace_of_two()}) {
    for (size_t size = 0; size < file.size(); size += file.size() / 37) {
      const Outcome outcome =
          run(GetParam().command, arguments(write(std::span(file).first(size))));
      EXPECT_THAT(outcome.status, ::testing::AnyOf(0, 1)) << size;
      if (outcome.status == 1) {
        EXPECT_FALSE(outcome.err.empty() && outcome.out.empty()) << size;
      }
    }
  }
}

TEST_P(CommandsTest, FlippedBits) {
  std::mt19937 random(7);
  for (const auto& good : {traced_file(traced_samples(2)), perfdata::testing::side_band_file(),
                           perfdata::testing::every_field_file(),
                           perfdata::testing::compressed_file(), full_trace_of_two()}) {
    for (int round = 0; round < 40; ++round) {
      auto file = good;
      for (int flips = 0; flips < 4; ++flips) {
        file[random() % file.size()] ^= std::byte{1} << (random() % 8);
      }
      const Outcome outcome = run(GetParam().command, arguments(write(file)));
      EXPECT_THAT(outcome.status, ::testing::AnyOf(0, 1)) << round;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CommandsTest, ::testing::ValuesIn(kInvocations),
                         [](const auto& each) { return std::string(each.param.name); });

class FileTest : public ::testing::Test {
 protected:
  std::string write(std::span<const std::byte> bytes) {
    const std::string path = scratch_.file("perf.data");
    perfdata::testing::write_file(path,
                                  {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return path;
  }
  ScratchDirectory scratch_;
};

TEST_F(FileTest, VerifyFailsOnAWrongEnd) {
  auto samples = traced_samples(3);
  samples[1].ip += 1;
  const std::string path = write(traced_file(samples));
  const Outcome text = run(run_verify, {"-i", path});
  EXPECT_EQ(text.status, 1);
  EXPECT_THAT(text.out, HasSubstr("FAILED"));
  EXPECT_THAT(text.out, HasSubstr(fmt::format("ip {:#x}", samples[1].ip)));
  const Outcome json = run(run_verify, {"--json", "-i", path});
  EXPECT_EQ(json.status, 1);
  const auto parsed = nlohmann::json::parse(json.out);
  EXPECT_EQ(parsed["ok"], false);
  EXPECT_EQ(parsed["samples_ending_elsewhere"], 1);
  EXPECT_EQ(parsed["branches"], 3 * kTracedTaken);
  EXPECT_EQ(parsed["failures"].size(), 1u);
}

TEST_F(FileTest, VerifyFailsOnACutFile) {
  auto file = traced_file(traced_samples(3));
  const std::string whole = write(file);
  EXPECT_EQ(run(run_verify, {"-i", whole}).status, 0);
  auto reader = perfdata::Reader::from_bytes(file, "test");
  ASSERT_TRUE(reader);
  const auto cut = static_cast<size_t>(reader->data_offset() + reader->data_bytes() - 100);
  const Outcome outcome = run(run_verify, {"-i", write(std::span(file).first(cut))});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("damaged"));
}

TEST_F(FileTest, ReportShowsTheFunctions) {
  const std::string path = write(traced_file(traced_samples(3)));
  const Outcome text = run(run_report, {"-i", path});
  EXPECT_THAT(text.out, HasSubstr("traced_main"));
  EXPECT_THAT(text.out, HasSubstr("traced_leaf"));
  EXPECT_THAT(text.out, HasSubstr("100.00%"));
  const auto json = nlohmann::json::parse(run(run_report, {"-i", path, "--json"}).out);
  const auto& rows = json["events"][0]["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["symbol"], "traced_main");
  EXPECT_EQ(rows[0]["self_percent"], 100.0);
  const Outcome limited = run(run_report, {"-i", path, "--percent-limit", "50"});
  EXPECT_THAT(limited.out, ::testing::Not(HasSubstr("traced_leaf")));
}

TEST_F(FileTest, LossesAreSaidAtTheEnd) {
  const std::string path = write(traced_file(traced_samples(3), false));
  for (Command command : {run_report, run_verify}) {
    const Arguments words = {"-i", path, "--decoder=libipt"};
    EXPECT_THAT(run(command, words).err, HasSubstr("warning: 3 decode errors"));
    // Ours goes on behind each of them, and meets more.
    EXPECT_THAT(run(command, {"-i", path}).err, HasSubstr("decode errors: no code at the address"));
  }
  EXPECT_THAT(run(run_script, {"-i", path, "-F", "brstack"}).err,
              HasSubstr("decode errors: no code at the address"));
}

// The kernel's samples of a thread that is going away; perf prints it so, too.
TEST_F(FileTest, AThreadThatIsGoneIsMinusOne) {
  auto samples = traced_samples(1);
  samples[0].tid = UINT32_MAX;
  const std::string path = write(traced_file(samples));
  EXPECT_THAT(run(run_script, {"-i", path, "-F", "pid,tid"}).out, HasSubstr("4242/-1"));
  EXPECT_THAT(run(run_report, {"-i", path, "--sort", "tid"}).out, HasSubstr("  -1\n"));
}

TEST_F(FileTest, VerifySaysWhenThereWasNothingToDo) {
  const Outcome outcome = run(run_verify, {"-i", write(traced_file({}))});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("Nothing to verify"));
  EXPECT_THAT(run(run_verify, {"-i", write(traced_file(traced_samples(3)))}).out,
              HasSubstr("All is well."));
}

TEST_F(FileTest, WrongKeysAndFields) {
  const std::string path = write(traced_file({}));
  EXPECT_EQ(run(run_report, {"-i", path, "--sort", "colour"}).status, 2);
  EXPECT_EQ(run(run_script, {"-i", path, "-F", "colour"}).status, 2);
  EXPECT_EQ(run(run_script, {"-i", path, "--last", "-1"}).status, 2);
  EXPECT_THAT(run(run_script, {"-i", path, "--last", "5"}).err, HasSubstr("--last is for brstack"));
  EXPECT_THAT(run(run_script, {"-i", path, "--last", "5", "-F", "ip,brlist"}).err,
              Not(HasSubstr("--last")));
  EXPECT_EQ(run(run_report, {"-i", path, "--percent-limit", "-1"}).status, 2);
  EXPECT_EQ(run(run_report, {"-i", path, "--percent-limit", "101"}).status, 2);
  EXPECT_EQ(run(run_report, {"-i", path, "--percent-limit", "0.5"}).status, 0);
  const Outcome outcome = run(run_script, {"-i", write(perfdata::testing::side_band_file())});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

// A trace that has lost a record says so, and that is no failure; one that does not decode is.
TEST_F(FileTest, VerifyCountsFullTrace) {
  using perfdata::testing::kPid;
  auto buffers = analysis::testing::full_trace({kPid}, 0, 300);
  const Outcome good =
      run(run_verify, {"-i", write(analysis::testing::full_trace_file(buffers)), "--json"});
  EXPECT_EQ(good.status, 0);
  const auto json = nlohmann::json::parse(good.out);
  EXPECT_EQ(json["full_trace"]["branches"], 100 * kTracedTaken);
  EXPECT_EQ(json["full_trace"]["records"], buffers.size());
  auto lost = buffers;
  lost.erase(lost.begin() + 2);
  const Outcome gap = run(run_verify, {"-i", write(analysis::testing::full_trace_file(lost))});
  EXPECT_EQ(gap.status, 0);
  EXPECT_THAT(gap.err, HasSubstr("bytes of trace lost between two AUXTRACE records"));
  EXPECT_THAT(gap.out, HasSubstr("All is well."));
  for (std::byte& byte : buffers[1].bytes) byte = std::byte{0x15};
  const Outcome bad = run(run_verify, {"-i", write(analysis::testing::full_trace_file(buffers))});
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.out, HasSubstr("FAILED"));
  EXPECT_THAT(bad.err, HasSubstr("decode errors"));
}

TEST_F(FileTest, ScriptPrintsTheBranchesOfFullTraceUnlessTold) {
  const std::string path = write(full_trace_of_two());
  const auto lines = [](const Outcome& outcome) {
    return std::count(outcome.out.begin(), outcome.out.end(), '\n');
  };
  const auto branches = 200 * static_cast<ptrdiff_t>(analysis::testing::traced_branches().size());
  EXPECT_EQ(lines(run(run_script, {"-i", path})), branches + 1);
  EXPECT_EQ(lines(run(run_script, {"-i", path, "--no-itrace"})), 1);
  EXPECT_THAT(run(run_script, {"-i", path, "--last", "5"}).err, HasSubstr("printed whole"));
  const Outcome report = run(run_report, {"-i", path});
  EXPECT_THAT(report.out, HasSubstr("# Full trace"));
  EXPECT_THAT(report.out, HasSubstr("Samples: 1 of event"));
}

}  // namespace
}  // namespace auxtrail::cli
