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
  EXPECT_EQ(not_sampled_text({9, 0, {debugged, fixed, silent, fixed, gone}}),
            "5 of 9 program starts; never connected (a sandbox or a cleared environment): env, "
            "gone; static: 2 busybox; under a debugger: ls");
}

TEST(NotSampled, SumsUpTheRareOnes) {
  Census::Coverage coverage;
  coverage.images = 100;
  for (int i = 0; i < 8; ++i) {
    coverage.missed.push_back(
        {std::string(1, static_cast<char>('a' + i)), "", Declined::kValgrind});
  }
  coverage.missed.push_back(coverage.missed.back());
  EXPECT_EQ(not_sampled_text(coverage),
            "9 of 100 program starts; under valgrind: 2 h, a, b, c, 4 more");
}

}  // namespace
}  // namespace auxtrail::record
