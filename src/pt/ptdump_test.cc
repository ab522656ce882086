// The packets of libipt's own tests, which are newer than the libipt that tests link: all traces of
// ../shared/traces/libipt_ptt.tar.xz against what they expect ptdump to print, with the errata of
// the CPUs they are for. Left out are the columns and messages of the clock.
#include "pt/testing/ptdump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <span>

#include "pt/testing/ptt_cases.h"

namespace auxtrail::pt {
namespace {

using testing::ptdump;
using testing::ptdump_options;

// Without the clock: its messages, and the columns behind a packet's.
std::vector<std::string> expected_lines(const test::PttCase& ptt) {
  static const std::regex kMessage("\\[.*(calibrat|updating time|printing time).*\\]");
  static const std::regex kColumn("(.*(tsc|tma|cbr|mtc|cyc) .*) (tsc|fcr) [^ ]+");
  std::vector<std::string> lines;
  for (const std::string& line : ptt.expected) {
    if (!std::regex_match(line, kMessage)) lines.push_back(std::regex_replace(line, kColumn, "$1"));
  }
  return lines;
}

TEST(PtdumpTest, SamePacketsAsInLibiptsOwnTests) {
  const test::PttArchive archive;
  if (archive.obstacle()) GTEST_SKIP() << *archive.obstacle();
  std::set<std::string> names;
  for (const test::PttCase& ptt : archive.cases("ptdump")) {
    const auto trace = archive.bytes(ptt.base + ".pt");
    std::string arguments;
    for (const std::string& option : ptt.options) arguments += option + " ";
    std::vector<std::string> unknown;
    const auto options = ptdump_options(arguments, unknown);
    EXPECT_TRUE(unknown.empty()) << ptt.name << ": " << unknown[0];
    EXPECT_THAT(ptdump(std::as_bytes(std::span(trace)), options, test::config_of(ptt).errata),
                ::testing::ElementsAreArray(expected_lines(ptt)))
        << ptt.name;
    names.insert(ptt.base);
  }
  EXPECT_GE(names.size(), 190U);
}

}  // namespace
}  // namespace auxtrail::pt
