// The auxtrail program with the real software trace unit: faults that need one, and that Linux perf
// decodes what comes out. (Whether programs run unchanged is tests/transparency's business.)

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "cli/testing/file_facts.h"
#include "cli/testing/record_fixture.h"

namespace auxtrail::cli::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RecordUnit : public RecordFixture {
 protected:
  RecordUnit() : RecordFixture(AUXTRAIL_PROGRAM, AUXTRAIL_UNIT_LIBRARY) {}

  // A shell loop of about `steps` branches and no system calls, then a line of output.
  static std::vector<std::string> loop(const std::string& steps) {
    return {"bash", "-c",
            "x=0; for ((i = 0; i < " + steps + "; ++i)); do ((x += i * i)); done; echo $x"};
  }
  static void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  }
  // perf's own decoding of the file's trace; the number of its error lines.
  static size_t perf_errors(const std::string& path, size_t& branches) {
    const Ended ended = run_program({"sh", "-c",
                                     "perf script -i " + path +
                                         " --itrace=be -F ip 2>&1 | grep -c . ; perf script -i " +
                                         path + " --itrace=be -F ip 2>&1 | grep -ci error"});
    std::istringstream numbers(ended.out);
    size_t errors = 0;
    numbers >> branches >> errors;
    return errors;
  }
};

// The period is longer than any window, on slow machines too: no overflow finds the unit at work.
TEST_F(RecordUnit, PerfDecodesTheHistory) {
  std::vector<std::string> command = record({"-F", "50"});
  append(command, loop("900000"));
  const Ended ended = run_program(command, options());
  ASSERT_EQ(ended.exit_status(), 0) << ended.err;
  EXPECT_EQ(ended.out, run_program(loop("900000")).out);
  const FileFacts facts = read_facts(folder_.path("perf.data"));
  ASSERT_TRUE(facts.readable) << facts.error;
  EXPECT_GE(facts.samples, 5U) << ended.err;
  EXPECT_THAT(facts.messages, IsEmpty());
  if (run_program({"perf", "--version"}).exit_status() != 0) GTEST_SKIP() << "no Linux perf here";
  size_t branches = 0;
  EXPECT_EQ(perf_errors(folder_.path("perf.data"), branches), 0U);
  EXPECT_GT(branches, 1000U);
}

// The functions of a frame's lines in `script -F callstack`, innermost first, "" between samples.
std::vector<std::string> stack_functions(const std::string& text) {
  std::vector<std::string> functions;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) functions.emplace_back();
    if (line.empty() || line.front() != '\t') continue;
    std::istringstream words(line);
    std::string word;
    std::string function;
    words >> word;
    function = word == "[unknown]" ? word : (words >> function, function);
    functions.push_back(function.substr(0, function.find('+')));
  }
  return functions;
}

// Who calls whom in that program is known.
TEST_F(RecordUnit, CallStacksAreTheProgramsOwn) {
  const Ended ended = run_program(record({"-F", "1000", AUXTRAIL_NESTED_CALLS}), options());
  ASSERT_EQ(ended.exit_status(), 0) << ended.err;
  const Ended text = run_program(
      {AUXTRAIL_PROGRAM, "script", "-i", folder_.path("perf.data"), "-F", "ip,callstack"});
  ASSERT_EQ(text.exit_status(), 0) << text.err;
  const auto functions = stack_functions(text.out);
  const std::map<std::string, std::string> callers = {{"nested_leaf", "nested_middle"},
                                                      {"nested_middle", "nested_outer"},
                                                      {"nested_outer", "main"}};
  std::map<std::string, size_t> known;
  for (size_t i = 0; i + 1 < functions.size(); ++i) {
    const auto caller = callers.find(functions[i]);
    if (caller == callers.end()) continue;
    if (functions[i + 1] != "[unknown]") {
      EXPECT_EQ(functions[i + 1], caller->second) << "called " << functions[i];
      ++known[functions[i]];
    }
  }
  // Samples are taken at any place; most of the time is the leaf's.
  EXPECT_GT(known["nested_leaf"], 3U) << text.out;
  EXPECT_GT(known["nested_middle"], 3U);
}

// Windows of several threads overlap in time and share perf's one queue; none may be dropped as an
// overlap.
TEST_F(RecordUnit, PerfDecodesEveryThreadsSamples) {
  if (run_program({"perf", "--version"}).exit_status() != 0) GTEST_SKIP() << "no Linux perf here";
  const std::string script =
      "import threading\n"
      "def work():\n"
      "  x = 0\n"
      "  for i in range(300000): x += i * i\n"
      "threads = [threading.Thread(target=work) for _ in range(4)]\n"
      "[t.start() for t in threads]; [t.join() for t in threads]\n";
  const Ended ended = run_program(record({"-F", "100", "python3", "-c", script}), options());
  ASSERT_EQ(ended.exit_status(), 0) << ended.err;
  const FileFacts facts = read_facts(folder_.path("perf.data"));
  ASSERT_GE(facts.sample_tids.size(), 2U) << ended.err;
  const Ended lines = run_program(
      {"sh", "-c", "perf script -i perf.data --itrace=L8e -F tid,brstack | sort -u -k1,1 | wc -l"},
      options());
  EXPECT_EQ(std::stoul(lines.out), facts.sample_tids.size());
  size_t branches = 0;
  EXPECT_EQ(perf_errors(folder_.path("perf.data"), branches), 0U);
}

TEST_F(RecordUnit, AKilledProgramLeavesAReadableFile) {
  RunOptions run_options = options();
  const std::string script =
      "echo $$ > written; mv written ready; x=0; while :; do ((x += 1)); done";
  run_options.meanwhile = [this](pid_t) {
    for (int i = 0; i < 2000 && !fs::exists(folder_.path("ready")); ++i) ::usleep(2000);
    ::usleep(200000);
    ::kill(std::stoi(read_file(folder_.path("ready"))), SIGKILL);
  };
  const Ended ended = run_program(record({"bash", "-c", script}), run_options);
  EXPECT_EQ(ended.signal(), SIGKILL) << ended.err;
  EXPECT_GT(read_facts(folder_.path("perf.data")).samples, 0U);
}

TEST_F(RecordUnit, TheProgramComputesTheSameWhenTheRecorderIsKilled) {
  RunOptions run_options = options();
  const std::vector<std::string> plain = loop("400000");
  const std::string expected = run_program(plain).out;
  run_options.meanwhile = [](pid_t recorder) {
    ::usleep(300000);
    ::kill(recorder, SIGKILL);
  };
  std::vector<std::string> command =
      record({"bash", "-c", plain[2].substr(0, plain[2].rfind("echo")) + "echo $x > result"});
  const Ended ended = run_program(command, run_options);
  for (int i = 0; i < 5000 && read_file(folder_.path("result")).empty(); ++i) ::usleep(2000);
  EXPECT_EQ(read_file(folder_.path("result")), expected);
  EXPECT_TRUE(ended.signal() == SIGKILL || ended.exit_status() == 0);
  EXPECT_TRUE(read_facts(folder_.path("perf.data")).readable);
}

// Programs that the unit leaves alone say so themselves; for the others their files tell.
TEST_F(RecordUnit, TellsWhichProgramsWereNotSampledAndWhy) {
  const std::string script =
      "(ulimit -v 900000; /bin/cat < /dev/null); (ulimit -f 100; /bin/true); env -i /bin/echo x; "
      "exit 3";
  const Ended ended = run_program(record({"bash", "-c", script}), options());
  EXPECT_EQ(ended.exit_status(), 3);
  EXPECT_EQ(ended.out, "x\n");
  EXPECT_THAT(ended.err, HasSubstr("not sampled: 3 of "));
  EXPECT_THAT(ended.err, HasSubstr("; under a memory limit (ulimit -v, -d): cat"));
  EXPECT_THAT(ended.err,
              HasSubstr("; under a file size limit (ulimit -f; a smaller -m needs less): true"));
  EXPECT_THAT(ended.err, HasSubstr("; never connected (a sandbox or a cleared environment): echo"));
}

TEST_F(RecordUnit, ThreadTimersWhereKernelEventsAreDenied) {
  RunOptions run_options = options();
  run_options.in_child = deny_perf_events;
  std::vector<std::string> command = record({});
  append(command, loop("200000"));
  const Ended ended = run_program(command, run_options);
  EXPECT_EQ(ended.exit_status(), 0) << ended.err;

  EXPECT_THAT(ended.err, HasSubstr("thread timers at "));
  EXPECT_THAT(ended.err, HasSubstr("because perf_event_open: EACCES"));
  const FileFacts facts = read_facts(folder_.path("perf.data"));
  EXPECT_GT(facts.samples, 0U) << ended.err;
  if (run_program({"perf", "--version"}).exit_status() != 0) GTEST_SKIP() << "no Linux perf here";
  size_t branches = 0;
  EXPECT_EQ(perf_errors(folder_.path("perf.data"), branches), 0U);
  EXPECT_GT(branches, 100U);
}

// Nothing of the kernel's is needed to count.
TEST_F(RecordUnit, TheUnitCountsWhereKernelEventsAreDenied) {
  RunOptions run_options = options();
  run_options.in_child = deny_perf_events;
  std::vector<std::string> command = record({"-e", "branches:u", "-c", "10007"});
  append(command, loop("20000"));
  const Ended ended = run_program(command, run_options);
  EXPECT_EQ(ended.exit_status(), 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("bring threads back into the trace"));
  EXPECT_THAT(ended.err, HasSubstr("the trace unit's count of branches:u, thread timers at"));
  EXPECT_GT(read_facts(folder_.path("perf.data")).samples, 0U) << ended.err;
}

}  // namespace
}  // namespace auxtrail::cli::testing
