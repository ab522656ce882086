#include "record/census.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace auxtrail::record {
namespace {

abi::TaskRecord task(uint32_t pid, uint32_t tid, uint32_t parent, uint64_t time_ns) {
  abi::TaskRecord record;
  record.pid = pid;
  record.tid = tid;
  record.parent_pid = parent;
  record.parent_tid = parent;
  record.time_ns = time_ns;
  return record;
}

abi::CommRecord exec(uint32_t pid, uint64_t time_ns, std::string_view name = "") {
  abi::CommRecord record;
  record.pid = record.tid = pid;
  record.exec = true;
  record.name = name;
  record.id.time_ns = time_ns;
  return record;
}

abi::MmapRecord mapping(uint32_t pid, uint64_t time_ns, std::string_view path) {
  abi::MmapRecord record;
  record.pid = record.tid = pid;
  record.protection = PROT_READ | PROT_EXEC;
  record.path = path;
  record.id.time_ns = time_ns;
  return record;
}

TEST(Census, KnowsWhichThreadIsWhose) {
  Census census;
  census.add_root(100);
  census.note_fork(task(100, 101, 100, 10));
  census.note_fork(task(200, 200, 100, 20));
  EXPECT_EQ(census.thread_state(100, 101), Census::ThreadState::kAlive);
  EXPECT_EQ(census.thread_state(200, 101), Census::ThreadState::kUnknown);
  EXPECT_EQ(census.thread_state(100, 102), Census::ThreadState::kUnknown);
  census.note_exit(task(100, 101, 100, 30));
  EXPECT_EQ(census.thread_state(100, 101), Census::ThreadState::kExited);
  census.forget_exited(30);
  EXPECT_EQ(census.thread_state(100, 101), Census::ThreadState::kExited);
  census.forget_exited(31);
  EXPECT_EQ(census.thread_state(100, 101), Census::ThreadState::kUnknown);
  EXPECT_EQ(census.thread_state(100, 100), Census::ThreadState::kAlive);
}

TEST(Census, CountsImagesThatNeverConnected) {
  Census census;
  census.add_root(100);
  census.note_comm(exec(100, 10));
  census.note_connection(100, 11);
  census.note_fork(task(200, 200, 100, 20));  // posix_spawn: replaced at once, no image of its own
  census.note_comm(exec(200, 21));            // a static program
  census.note_exit(task(200, 200, 100, 30));
  census.note_fork(task(300, 300, 100, 40));  // a forked child that samples
  census.note_connection(300, 41);
  const auto coverage = census.coverage(false);
  EXPECT_EQ(coverage.images, 3U);
  EXPECT_EQ(coverage.missed_count(), 1U);
  EXPECT_EQ(coverage.running, 2U);
  EXPECT_EQ(census.coverage(true).images, 1U);
  EXPECT_EQ(census.coverage(true).missed_count(), 0U);
  EXPECT_EQ(census.coverage(true).running, 1U);
}

TEST(Census, TellsWhichImagesWereMissed) {
  Census census;
  census.add_root(100);
  census.note_comm(exec(100, 10, "busybox"));
  census.note_mapping(mapping(100, 11, "/bin/busybox"));
  census.note_mapping(mapping(100, 12, "/lib/libc.so"));  // no program: the first one is
  census.note_fork(task(200, 200, 100, 20));              // a forked child is the same program
  census.note_fork(task(300, 300, 100, 30));
  census.note_comm(exec(300, 31, "sleep"));
  census.note_connection(300, 32, channel::Declined::kDebugged);
  census.note_exit(task(300, 300, 100, 40));
  census.note_exit(task(200, 200, 100, 50));
  census.note_exit(task(100, 100, 1, 60));
  const auto missed = census.coverage(false).missed;
  ASSERT_EQ(missed.size(), 2U);
  EXPECT_EQ(missed.at({"busybox", "/bin/busybox"}), 2U);
  EXPECT_EQ(missed.at({"sleep", "", channel::Declined::kDebugged}), 1U);
}

TEST(Census, KnowsAChildThatARawForkMadeOfASampledProcess) {
  Census census;
  census.add_root(100);
  census.note_comm(exec(100, 10, "bash"));
  census.note_mapping(mapping(100, 11, "/bin/bash"));
  census.note_connection(100, 12);
  census.note_fork(task(200, 200, 100, 20));
  census.note_exit(task(200, 200, 100, 30));
  const auto missed = census.coverage(false).missed;
  ASSERT_EQ(missed.size(), 1U);
  EXPECT_TRUE(missed.begin()->first.forked);
}

TEST(Census, SettlingChangesNothing) {
  Census census;
  census.add_root(100);
  census.note_comm(exec(100, 10, "a"));
  census.settle(5);
  census.note_mapping(mapping(100, 12, "//anon"));
  census.note_mapping(mapping(100, 14, "/lib/ld.so"));
  census.note_mapping(mapping(100, 13, "/bin/a"));
  census.settle(20);
  census.note_fork(task(200, 200, 100, 20));
  census.settle(21);
  census.note_exit(task(200, 200, 100, 30));
  const auto coverage = census.coverage(false);
  EXPECT_EQ(coverage.images, 2U);
  EXPECT_EQ(coverage.running, 1U);
  EXPECT_EQ(coverage.missed.at({"a", "/bin/a"}), 2U);
}

// The recorder may read the rings of the side-band after it took in the connection.
TEST(Census, OrderOfArrivalDoesNotMatter) {
  Census census;
  census.add_root(100);
  census.note_connection(200, 25);
  census.note_comm(exec(100, 10));
  census.note_connection(100, 11);
  census.note_fork(task(200, 200, 100, 20));
  census.note_comm(exec(200, 21));
  census.note_comm(exec(200, 50));  // it executes a second, static program
  EXPECT_EQ(census.coverage(false).images, 3U);
  EXPECT_EQ(census.coverage(false).missed_count(), 1U);
}

TEST(Census, RingsOfSeveralCpusMixTheOrder) {
  Census census;
  census.add_root(100);
  census.note_exit(task(200, 200, 100, 60));
  census.note_comm(exec(200, 40));
  census.note_connection(200, 50);
  census.note_fork(task(200, 200, 100, 30));
  EXPECT_EQ(census.thread_state(200, 200), Census::ThreadState::kExited);
  EXPECT_EQ(census.coverage(false).images, 2U);  // and the root, which never executed anything
  EXPECT_EQ(census.coverage(false).missed_count(), 1U);
  EXPECT_EQ(census.coverage(false).running, 1U);
  census.note_fork(task(300, 200, 300, 70));  // the number again, as another process's thread
  EXPECT_EQ(census.thread_state(300, 200), Census::ThreadState::kAlive);
  EXPECT_EQ(census.thread_state(200, 200), Census::ThreadState::kUnknown);
}

}  // namespace
}  // namespace auxtrail::record
