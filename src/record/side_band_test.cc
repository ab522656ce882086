// Both sources of side-band records: the kernel's rings and /proc.

#include "abi/side_band.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <string>

#include "record/clock.h"
#include "record/kernel_side_band.h"
#include "record/machine.h"
#include "record/session_config.h"
#include "record/synthetic_side_band.h"
#include "record/workload.h"

namespace auxtrail::record {
namespace {

channel::SessionConfig default_config() { return plan_session({}, {{false, 99}, 100000})->config; }

struct Seen {
  std::set<std::string> code;
  std::set<std::string> names;
  int forks = 0;
  int exits = 0;
  int foreign_ids = 0;

  void note(std::span<const std::byte> bytes) {
    const auto format = abi::SampleFormat::from_attr(default_config().leader);
    abi::Record record;
    ASSERT_EQ(abi::first_record(bytes, record), abi::RecordStatus::kOk);
    abi::SampleId id;
    ASSERT_EQ(abi::parse_trailer(record, format, id), abi::ParseStatus::kOk);
    if (id.id != kLeaderId) ++foreign_ids;
    abi::MmapRecord mapping;
    abi::CommRecord comm;
    abi::TaskRecord task;
    if (record.type == PERF_RECORD_MMAP2 &&
        abi::parse(record, format, mapping) == abi::ParseStatus::kOk) {
      code.emplace(mapping.path);
    } else if (record.type == PERF_RECORD_COMM &&
               abi::parse(record, format, comm) == abi::ParseStatus::kOk) {
      names.emplace(comm.name);
    } else if (record.type == PERF_RECORD_FORK || record.type == PERF_RECORD_EXIT) {
      ASSERT_EQ(abi::parse(record, format, task), abi::ParseStatus::kOk);
      ++(record.type == PERF_RECORD_FORK ? forks : exits);
    }
  }
};

TEST(KernelSideBand, TellsOfAWholeTree) {
  sigset_t mask;
  sigemptyset(&mask);
  const auto command = find_command("/bin/sh");
  ASSERT_TRUE(command);
  auto workload = Workload::fork(*command, {"sh", "-c", "/bin/true; exit 3"}, {"", ""}, mask);
  ASSERT_TRUE(workload);
  auto side_band = KernelSideBand::open(workload->pid(), default_config(), 1 << 17);
  if (!side_band) GTEST_SKIP() << side_band.error().message();
  ASSERT_TRUE(workload->start());
  std::optional<int> status;
  while (!(status = workload->try_wait())) ::usleep(1000);
  EXPECT_EQ(shell_status(*status), 3);
  Seen seen;
  side_band->drain([&seen](std::span<const std::byte> record) { seen.note(record); });
  EXPECT_EQ(seen.foreign_ids, 0);
  EXPECT_TRUE(seen.names.count("sh"));
  EXPECT_TRUE(seen.names.count("true"));
  EXPECT_TRUE(seen.code.count("[vdso]"));
  EXPECT_EQ(seen.forks, 1);
  EXPECT_EQ(seen.exits, 2);
}

TEST(SyntheticSideBand, TellsWhatProcTells) {
  const auto config = default_config();
  SyntheticSideBand side_band(abi::SampleFormat::from_attr(config.leader), config.leader_id);
  Seen seen;
  const auto take = [&seen](std::span<const std::byte> record) { seen.note(record); };
  ProcProcess process = read_process(::getpid());
  side_band.add_process(process, monotonic_ns(), take);
  EXPECT_EQ(seen.foreign_ids, 0);
  EXPECT_EQ(seen.forks, 1);
  EXPECT_TRUE(seen.names.count("record_test"));
  std::set<std::string> expected;
  for (const ProcMapping& mapping : process.code) expected.insert(mapping.path);
  EXPECT_EQ(seen.code, expected);

  Seen later;
  process.code.push_back({0x1000, 0x2000, 0, 0, 0, 0, PROT_READ | PROT_EXEC, MAP_PRIVATE, "/new"});
  side_band.update_mappings(process, monotonic_ns(),
                            [&later](std::span<const std::byte> record) { later.note(record); });
  EXPECT_EQ(later.code, std::set<std::string>{"/new"});

  side_band.end_process(process.pid, monotonic_ns(), take);
  side_band.end_process(process.pid, monotonic_ns(), take);
  EXPECT_EQ(seen.exits, 1);
}

TEST(Workload, ExtendsTheEnvironment) {
  const char* variables[] = {"A=1", "LD_PRELOAD=/x.so", "AUXTRAIL_SOCKET=/old",
                             "AUXTRAIL_SECCOMP_FILTERS=99", nullptr};
  const auto extended = child_environment(variables, {"/unit.so", "/socket"});
  const std::set<std::string> expected = {
      "A=1", "LD_PRELOAD=/x.so:/unit.so", "AUXTRAIL_SOCKET=/socket",
      "AUXTRAIL_SECCOMP_FILTERS=" + std::to_string(seccomp_filters())};
  EXPECT_EQ(std::set<std::string>(extended.begin(), extended.end()), expected);
  EXPECT_EQ(extended.size(), 4U);
}

TEST(Workload, ReportsAFailedExec) {
  sigset_t mask;
  sigemptyset(&mask);
  auto workload = Workload::fork({"/no/such/program", ""}, {"x"}, {"", ""}, mask);
  ASSERT_TRUE(workload);
  const auto status = workload->start();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().sys_errno, ENOENT);
}

}  // namespace
}  // namespace auxtrail::record
