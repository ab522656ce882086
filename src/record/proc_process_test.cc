#include "record/proc_process.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace auxtrail::record {
namespace {

TEST(ProcProcess, ParsesCodeMappings) {
  const auto code = parse_code_mappings(
      "55d0c0000000-55d0c0001000 r--p 00000000 fe:01 123 /usr/bin/a b\n"
      "55d0c0001000-55d0c0003000 r-xp 00001000 fe:01 123        /usr/bin/a b\n"
      "7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n"
      "7f0000002000-7f0000003000 r-xs 00002000 00:05 9 /memfd:x (deleted)\n"
      "not a line\n"
      "7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0          [vdso]\n"
      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n");
  ASSERT_EQ(code.size(), 4U);
  EXPECT_EQ(code[0].start, 0x55d0c0001000U);
  EXPECT_EQ(code[0].end, 0x55d0c0003000U);
  EXPECT_EQ(code[0].file_offset, 0x1000U);
  EXPECT_EQ(code[0].device_major, 0xfeU);
  EXPECT_EQ(code[0].device_minor, 1U);
  EXPECT_EQ(code[0].inode, 123U);
  EXPECT_EQ(code[0].path, "/usr/bin/a b");
  EXPECT_EQ(code[1].path, "//anon");
  EXPECT_EQ(code[1].protection, static_cast<uint32_t>(PROT_READ | PROT_WRITE | PROT_EXEC));
  EXPECT_EQ(code[2].flags, static_cast<uint32_t>(MAP_SHARED));
  EXPECT_EQ(code[3].path, "[vdso]");
}

TEST(ProcProcess, ReadsThisProcess) {
  const ProcProcess process = read_process(::getpid());
  EXPECT_EQ(process.parent, ::getppid());
  EXPECT_EQ(process.name, "record_test");
  const auto here = reinterpret_cast<uint64_t>(&parse_code_mappings);
  EXPECT_TRUE(std::any_of(process.code.begin(), process.code.end(), [here](const auto& mapping) {
    return mapping.start <= here && here < mapping.end;
  }));
}

TEST(ProcProcess, GoneProcessesAreEmpty) {
  const ProcProcess process = read_process(0x7fffffff);
  EXPECT_TRUE(process.code.empty());
  EXPECT_EQ(process.parent, 0);
  EXPECT_FALSE(find_thread_by_inner_tid(0x7fffffff, 1));
}

TEST(ProcProcess, FindsThreads) {
  std::thread([] {
    EXPECT_TRUE(thread_exists(::getpid(), ::gettid()));
    EXPECT_EQ(find_thread_by_inner_tid(::getpid(), ::gettid()), ::gettid());
  }).join();
  EXPECT_FALSE(thread_exists(::getpid(), 1));
}

}  // namespace
}  // namespace auxtrail::record
