// The running kernel as the oracle of the system calls: random programs of perf_event_open, mmap,
// munmap, mremap, ioctl, read, poll and close, with watchpoints that count and overflow, make the
// same calls to it and to the one that is played. The answers must be the same: errnos, sizes and
// counts read, poll's events, and in every ring the head and each record's kind and size.
//
// Differences that are known, and why, are in docs/design/perf-event.md.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <map>
#include <string>
#include <utility>

#include "perf_event/testing/random_program.h"

namespace auxtrail::perf_event::testing {
namespace {

// Returns the number of calls made.
int run_programs(int programs, uint64_t first_seed, const Settings& settings, const User& user) {
  stay_on_cpu_0();
  signal(SIGTRAP, [](int) { stray_traps = 1; });
  int abandoned = 0;
  std::map<std::string, std::pair<int, int>> outcomes;
  int calls = 0;
  uint64_t records = 0;
  for (int i = 0; i < programs && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("program " + std::to_string(i));
    Program program(first_seed + static_cast<uint64_t>(i), settings, user);
    program.run(60);
    abandoned += stray_traps != 0 ? 1 : 0;
    calls += program.calls();
    records += program.record_count();
    for (const auto& [name, counts] : program.outcomes()) {
      outcomes[name].first += counts.first;
      outcomes[name].second += counts.second;
    }
  }
  for (const auto& [name, counts] : outcomes) {
    std::printf("%-14s %6d succeeded %6d refused\n", name.c_str(), counts.first, counts.second);
  }
  std::printf("%d calls, %llu records compared\n", calls, static_cast<unsigned long long>(records));
  EXPECT_LE(abandoned, 5);
  return calls;
}

TEST(PerfEventOracle, B1_B2_B4_D4_D5_D6_D7_RandomProgramsOfAPrivilegedCaller) {
  if (const char* why = why_no_oracle(); why != nullptr) GTEST_SKIP() << why;
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const int calls = run_programs(1500, 1, settings_of_this_system(), {});
  EXPECT_GT(calls, 80000);
}

// As a user without any rights, another for each batch: how much he may lock is another test's.
int run_as_nobody(int batch) {
  const auto uid = static_cast<uid_t>(2'000'000 + getpid());
  if (setresuid(uid, uid, uid) != 0) return 100;
  if (why_no_oracle() != nullptr) return 101;
  const int calls =
      run_programs(50, 1'000'000 + static_cast<uint64_t>(batch) * 50, settings_of_this_system(),
                   {.uid = uid, .is_perfmon = false, .may_lock = false, .may_trace = false});
  std::fflush(stdout);
  return ::testing::Test::HasFailure() || calls < 2500 ? 1 : 0;
}

TEST(PerfEventOracle, A4_B1_B2_B4_RandomProgramsOfAnOrdinaryCaller) {
  if (const char* why = why_no_oracle(); why != nullptr) GTEST_SKIP() << why;
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  for (int batch = 0; batch < 12; ++batch) {
    const pid_t child = fork();
    if (child == 0) _exit(run_as_nobody(batch));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 101) GTEST_SKIP() << "denied to ordinary users";
    ASSERT_EQ(WEXITSTATUS(status), 0) << "batch " << batch;
  }
}

}  // namespace
}  // namespace auxtrail::perf_event::testing
