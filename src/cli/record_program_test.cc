// The auxtrail program, recording a program that carries a fake trace unit: the recorder's own
// behaviour, whatever the unit does.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "cli/testing/file_facts.h"
#include "cli/testing/record_fixture.h"

namespace auxtrail::cli::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class RecordProgram : public RecordFixture {
 protected:
  RecordProgram() : RecordFixture(AUXTRAIL_PROGRAM, AUXTRAIL_EMPTY_UNIT) {}
  // Natively and recorded must be the same for whoever looks from outside.
  void expect_same(const std::vector<std::string>& command, RunOptions run_options) {
    const Ended native = run_program(command, run_options);
    std::vector<std::string> recorded_command = record({"-q", "--"});
    recorded_command.insert(recorded_command.end(), command.begin(), command.end());
    const Ended recorded = run_program(recorded_command, run_options);
    EXPECT_EQ(recorded.wait_status & 0xff7f, native.wait_status & 0xff7f);  // without "dumped core"
    EXPECT_EQ(recorded.out, native.out);
    EXPECT_EQ(recorded.err, native.err);
  }
};

TEST_F(RecordProgram, WritesSamplesAndSideBand) {
  const Ended ended = run_program(record({AUXTRAIL_FAKE_PROGRAM, "samples", "100"}), options());
  EXPECT_EQ(ended.exit_status(), 7) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("[ auxtrail record: Captured and wrote "));
  EXPECT_THAT(ended.err, HasSubstr(" MB perf.data (100 samples, "));
  EXPECT_THAT(ended.err, HasSubstr("trace unit: software"));
  EXPECT_THAT(ended.err, Not(HasSubstr("Lost")));
  const FileFacts facts = read_facts(folder_.path("perf.data"));
  ASSERT_TRUE(facts.readable) << facts.error;
  EXPECT_EQ(facts.samples, 100U);
  EXPECT_EQ(facts.aux_bytes, 4800U);
  EXPECT_EQ(facts.out_of_order, 0U);
  EXPECT_EQ(facts.samples_of_pid.size(), 1U);
  EXPECT_THAT(facts.code, Contains(fs::canonical(AUXTRAIL_FAKE_PROGRAM).string()));
  EXPECT_THAT(facts.build_id_paths, Contains(fs::canonical(AUXTRAIL_FAKE_PROGRAM).string()));
  EXPECT_THAT(facts.code, Contains("[vdso]"));
  EXPECT_THAT(facts.build_id_paths, Contains("[vdso]"));
  EXPECT_EQ(facts.command_line.front(), "auxtrail");
  EXPECT_THAT(facts.messages, IsEmpty());
}

TEST_F(RecordProgram, SlotsOfEndedThreadsAreUsedAgain) {
  const Ended ended = run_program(record({AUXTRAIL_FAKE_PROGRAM, "threads", "200"}), options());
  EXPECT_EQ(ended.exit_status(), 0) << ended.err;
  const FileFacts facts = read_facts(folder_.path("perf.data"));
  EXPECT_EQ(facts.samples, 200U) << ended.err;
  EXPECT_EQ(facts.sample_tids.size(), 200U);
}

TEST_F(RecordProgram, ScribblingHarmsNobodyElse) {
  const Ended ended = run_program(record({AUXTRAIL_FAKE_PROGRAM, "scribble"}), options());
  EXPECT_EQ(ended.exit_status(), 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("rings found damaged"));
  const FileFacts facts = read_facts(folder_.path("perf.data"));
  ASSERT_TRUE(facts.readable) << facts.error;
  EXPECT_THAT(facts.messages, IsEmpty());
  ASSERT_EQ(facts.samples_of_pid.size(), 2U);
  uint64_t most = 0;
  uint64_t least = UINT64_MAX;
  for (const auto& [pid, samples] : facts.samples_of_pid) {
    most = std::max(most, samples);
    least = std::min(least, samples);
  }
  EXPECT_EQ(most, 300U) << "the child's samples are all there";
  EXPECT_GE(least, 10U) << "and what the program wrote before it went wild";
}

TEST_F(RecordProgram, KeepsTheOldFile) {
  run_program(record({AUXTRAIL_FAKE_PROGRAM, "samples", "1"}), options());
  run_program(record({AUXTRAIL_FAKE_PROGRAM, "samples", "2"}), options());
  EXPECT_EQ(read_facts(folder_.path("perf.data")).samples, 2U);
  EXPECT_EQ(read_facts(folder_.path("perf.data.old")).samples, 1U);
}

TEST_F(RecordProgram, NoInheritSamplesTheFirstProcessOnly) {
  const Ended ended = run_program(record({"-i", AUXTRAIL_FAKE_PROGRAM, "scribble"}), options());
  EXPECT_EQ(ended.exit_status(), 1) << "the child's unit is not answered";
  EXPECT_EQ(read_facts(folder_.path("perf.data")).samples_of_pid.size(), 1U);
}

TEST_F(RecordProgram, OptionsThatMakeNoSenseAreWrongUsage) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"-e", "no-such-event"}, {"-F", "0"}, {"--aux-sample=1"}}) {
    std::vector<std::string> command = record(words);
    command.emplace_back("true");
    const Ended ended = run_program(command, options());
    EXPECT_EQ(ended.exit_status(), 2) << words[0];
    EXPECT_FALSE(std::filesystem::exists(folder_.path("perf.data")));
  }
}

TEST_F(RecordProgram, CountsWhatWasNotSampled) {
  const Ended ended = run_program(
      record({"sh", "-c", std::string(AUXTRAIL_STATIC_PROGRAM) + "; exit 0"}), options());
  EXPECT_EQ(ended.exit_status(), 0);
  EXPECT_THAT(ended.err, HasSubstr("not sampled: all 2 program starts; "));
  EXPECT_THAT(ended.err, HasSubstr("; static: auxtrail_static"));
}

// A crash's history takes continuous trace, a termination's is of no use.
TEST_F(RecordProgram, TellsHowToSeeWhatLedToACrash) {
  const auto killed_by = [this](const std::string& name, std::vector<std::string> words) {
    for (const char* word : {"sh", "-c"}) words.emplace_back(word);
    words.push_back("kill -" + name + " $$");
    return run_program(record(words), options()).err;
  };
  EXPECT_THAT(killed_by("SEGV", {}), HasSubstr("died of signal 11 (Segmentation fault): --unit="));
  EXPECT_THAT(killed_by("TERM", {}), Not(HasSubstr("--unit=")));
  EXPECT_THAT(killed_by("SEGV", {"--unit=continuous"}), Not(HasSubstr("--unit=")));
}

TEST_F(RecordProgram, QuietPrintsNothing) {
  const Ended ended = run_program(record({"-q", "true"}), options());
  EXPECT_EQ(ended.exit_status(), 0);
  EXPECT_EQ(ended.out + ended.err, "");
}

TEST_F(RecordProgram, StandardStreamsAndStatusAreTheCommands) {
  RunOptions run_options = options();
  run_options.input = "some input\nand more\n";
  expect_same({"cat"}, run_options);
  expect_same({"sh", "-c", "cat; echo to stderr >&2; exit 42"}, run_options);
  expect_same({"sh", "-c", "kill -TERM $$"}, run_options);
  expect_same({"sh", "-c", "kill -SEGV $$"}, run_options);
  expect_same({"sh", "-c", "kill -KILL $$"}, run_options);
}

TEST_F(RecordProgram, DescriptorsSignalsAndLimitsAreTheCallers) {
  RunOptions run_options = options();
  run_options.in_child = [] {
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    ::signal(SIGHUP, SIG_IGN);
    ::signal(SIGCHLD, SIG_IGN);
    (void)::open("/dev/null", O_RDONLY);  // inherited, not close-on-exec
  };
  expect_same({"sh", "-c", "ls -l /proc/self/fd | wc -l; ulimit -n; umask; pwd"}, run_options);
  expect_same({"grep", "-E", "^Sig(Blk|Ign|Cgt)|^SigQ: *0", "/proc/self/status"}, run_options);
}

TEST_F(RecordProgram, StartFailures) {
  const RunOptions run_options = options();
  const Ended missing = run_program(record({"no-such-command"}), run_options);
  EXPECT_EQ(missing.exit_status(), 127);
  EXPECT_THAT(missing.err, HasSubstr("command not found"));
  write_file(folder_.path("plain"), "text");
  EXPECT_EQ(run_program(record({"./plain"}), run_options).exit_status(), 126);
  const Ended refused = run_program(record({AUXTRAIL_STATIC_PROGRAM}), run_options);
  EXPECT_EQ(refused.exit_status(), 1);
  EXPECT_THAT(refused.err, HasSubstr("statically linked"));
  EXPECT_FALSE(fs::exists(folder_.path("perf.data")));
  EXPECT_EQ(run_program(record({"--no-such-option", "true"}), run_options).exit_status(), 2);
  EXPECT_EQ(run_program({AUXTRAIL_PROGRAM, "no-such-command"}, run_options).exit_status(), 2);
}

TEST_F(RecordProgram, UnwritableOutputFailsBeforeTheStart) {
  const Ended ended = run_program(record({"-o", "no-folder/x.data", "touch", "ran"}), options());
  EXPECT_EQ(ended.exit_status(), 1);
  EXPECT_THAT(ended.err, HasSubstr("no-folder/x.data"));
  EXPECT_FALSE(fs::exists(folder_.path("ran")));
}

TEST_F(RecordProgram, AMissingUnitFailsBeforeTheStart) {
  RunOptions run_options = options();
  run_options.environment["AUXTRAIL_UNIT"] = "/no/such/unit.so";
  const Ended ended = run_program(record({"touch", "ran"}), run_options);
  EXPECT_EQ(ended.exit_status(), 1);
  EXPECT_FALSE(fs::exists(folder_.path("ran")));
}

TEST_F(RecordProgram, FullDisk) {
  RunOptions run_options = options();
  const std::string mount_point = folder_.path("disk");
  fs::create_directory(mount_point);
  const std::string kept = folder_.path("kept");
  run_options.in_child = [&] {  // a private mount, gone with the process
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", mount_point.c_str(), "tmpfs", 0, "size=64k") != 0) {
      ::_exit(77);
    }
  };
  const std::string script = std::string(AUXTRAIL_PROGRAM) + " record -o disk/perf.data " +
                             AUXTRAIL_FAKE_PROGRAM + " samples 2000; echo status $?; cp " +
                             "disk/perf.data kept";
  const Ended ended = run_program({"sh", "-c", script}, run_options);
  if (ended.exit_status() == 77) GTEST_SKIP() << "no right to mount";
  EXPECT_THAT(ended.out, HasSubstr("status 7"));
  EXPECT_THAT(ended.err, HasSubstr("No space left on device"));
  EXPECT_THAT(ended.err, HasSubstr("wrote only"));
  EXPECT_TRUE(read_facts(kept).readable);
}

// A file size limit fails writes as a full disk does, and needs no rights to set up.
TEST_F(RecordProgram, AFailedRecordingOfASuccessfulProgramIsAFailure) {
  RunOptions run_options = options();
  run_options.in_child = [] {
    const rlimit limit{1 << 10, 1 << 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  };
  const Ended ended = run_program(record({"sh", "-c", "true; true"}), run_options);
  EXPECT_EQ(ended.exit_status(), 1);
  EXPECT_THAT(ended.err, HasSubstr("File too large"));
}

TEST_F(RecordProgram, SignalsGoToTheCommandAndTheFileIsClosed) {
  for (const int number : {SIGINT, SIGTERM}) {
    RunOptions run_options = options();
    run_options.meanwhile = [this, number](pid_t recorder) {
      for (int i = 0; i < 2000 && !fs::exists(folder_.path("ready")); ++i) ::usleep(2000);
      ::kill(recorder, number);
    };
    const std::string script =
        "trap 'echo caught; exit 5' INT TERM; touch ready; while :; do sleep 0.01; done";
    const Ended ended = run_program(record({"bash", "-c", script}), run_options);
    EXPECT_EQ(ended.exit_status(), 5) << ended.err;
    EXPECT_EQ(ended.out, "caught\n");
    EXPECT_TRUE(read_facts(folder_.path("perf.data")).readable);
    fs::remove(folder_.path("ready"));
  }
}

TEST_F(RecordProgram, TheCommandLivesOnWhenTheRecorderIsKilled) {
  RunOptions run_options = options();
  run_options.meanwhile = [this](pid_t recorder) {
    for (int i = 0; i < 2000 && !fs::exists(folder_.path("ready")); ++i) ::usleep(2000);
    ::kill(recorder, SIGKILL);
  };
  const Ended ended =
      run_program(record({"sh", "-c", "touch ready; sleep 0.3; echo done > result"}), run_options);
  EXPECT_EQ(ended.signal(), SIGKILL);
  for (int i = 0; i < 2000 && read_file(folder_.path("result")).empty(); ++i) ::usleep(2000);
  EXPECT_EQ(read_file(folder_.path("result")), "done\n");
  EXPECT_TRUE(read_facts(folder_.path("perf.data")).readable);
}

TEST_F(RecordProgram, ProcessesThatOutliveTheCommandAreCounted) {
  const std::string script = std::string(AUXTRAIL_FAKE_PROGRAM) + " samples 5000 & sleep 0.3";
  const Ended ended = run_program(record({"sh", "-c", script}), options());
  EXPECT_THAT(ended.err, HasSubstr("1 still running"));
}

TEST_F(RecordProgram, WithoutKernelEventsTheSideBandComesFromProc) {
  RunOptions run_options = options();
  run_options.in_child = deny_perf_events;
  const Ended ended = run_program(record({AUXTRAIL_FAKE_PROGRAM, "samples", "50"}), run_options);
  EXPECT_EQ(ended.exit_status(), 7) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("Side-band made from /proc"));
  EXPECT_THAT(ended.err, HasSubstr("Permission denied"));
  const FileFacts facts = read_facts(folder_.path("perf.data"));
  EXPECT_EQ(facts.samples, 50U);
  EXPECT_THAT(facts.code, Contains(fs::canonical(AUXTRAIL_FAKE_PROGRAM).string()));
  EXPECT_THAT(facts.names, Contains("auxtrail_fake_p"));  // the kernel keeps 15 letters
  EXPECT_EQ(facts.exits, 1U);
  const Ended fault = run_program(record({"-e", "page-faults", "true"}), run_options);
  EXPECT_EQ(fault.exit_status(), 1) << "timers are no page faults";
}

// What the product writes, Linux perf must read without a complaint.
TEST_F(RecordProgram, LinuxPerfReadsTheFile) {
  if (run_program({"perf", "--version"}).exit_status() != 0) GTEST_SKIP() << "no Linux perf here";
  run_program(record({AUXTRAIL_FAKE_PROGRAM, "samples", "50"}), options());
  const Ended ended = run_program({"perf", "script", "-i", "perf.data", "--itrace=Le", "-F",
                                   "comm,pid,tid,time,event,ip,brstack"},
                                  options());
  EXPECT_EQ(ended.exit_status(), 0) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr("error")));
  EXPECT_EQ(std::count(ended.out.begin(), ended.out.end(), '\n'), 50);
  EXPECT_THAT(ended.out, HasSubstr("task-clock:u"));
}

TEST(DoctorProgram, PrintsOneScreen) {
  const Ended text = run_program({AUXTRAIL_PROGRAM, "doctor"});
  EXPECT_EQ(text.exit_status(), 0);
  EXPECT_LE(std::count(text.out.begin(), text.out.end(), '\n'), 24);
  for (const char* topic :
       {"trace unit: software", "trace unit: Intel PT", "trigger", "hardware counters",
        "perf_event_paranoid", "perf_event_mlock_kb", "ptrace_scope", "debug info"}) {
    EXPECT_THAT(text.out, HasSubstr(topic));
  }
  EXPECT_THAT(text.out, Not(HasSubstr("\x1b")));
  const Ended json = run_program({AUXTRAIL_PROGRAM, "doctor", "--json"});
  EXPECT_EQ(json.exit_status(), 0);
  EXPECT_THAT(json.out, HasSubstr("\"findings\": ["));
}

}  // namespace
}  // namespace auxtrail::cli::testing
