#include "record/not_sampled.h"

#include <gtest/gtest.h>

namespace auxtrail::record {
namespace {

using channel::Declined;

TEST(NotSampled, NothingToTell) { EXPECT_EQ(not_sampled_text({5, 0, {}}), ""); }

TEST(NotSampled, NamesProgramsAndReasons) {
  const Census::Missed fixed{"busybox", AUXTRAIL_STATIC_PROGRAM, Declined::kNo};
  const Census::Missed debugged{"ls", "/bin/ls", Declined::kDebugged};
  const Census::Missed silent{"env", "/bin/sh", Declined::kNo};
  const Census::Missed gone{"gone", "/no/such/file", Declined::kNo};
  EXPECT_EQ(not_sampled_text({9, 0, {{debugged, 1}, {fixed, 2}, {silent, 1}, {gone, 1}}}),
            "5 of 9 program starts; never connected (a sandbox or a cleared environment): env, "
            "gone; static: 2 busybox; under a debugger (AUXTRAIL_WHEN_TRACED=sample samples all "
            "the same): ls");
}

// A child that the raw system call made of a sampled process.
TEST(NotSampled, ForkedPastLibc) {
  Census::Missed child{"bash", "/bin/bash"};
  child.forked = true;
  EXPECT_EQ(not_sampled_text({2, 0, {{child, 1}}}),
            "1 of 2 program starts; forked past libc's fork(): bash");
}

TEST(NotSampled, SumsUpTheRareOnes) {
  Census::Coverage coverage;
  coverage.images = 100;
  for (int i = 0; i < 8; ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    coverage.missed[{name, "", Declined::kValgrind}] = i == 7 ? 2 : 1;
  }
  EXPECT_EQ(not_sampled_text(coverage),
            "9 of 100 program starts; under valgrind: 2 h, a, b, c, 4 more");
}

}  // namespace
}  // namespace auxtrail::record
