// The packets of libipt's own tests, which are newer than the libipt that tests link: all traces of
// ../shared/traces/libipt_ptt.tar.xz against what they expect ptdump to print, with the errata of
// the CPUs they are for. Left out are the columns and messages of the clock.
#include "pt/testing/ptdump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

namespace auxtrail::pt {
namespace {

using testing::ptdump;
using testing::ptdump_options;

std::string content_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The archive in a folder of its own, until the test's end.
class Archive {
 public:
  explicit Archive(const std::filesystem::path& archive) {
    std::string folder = std::filesystem::temp_directory_path() / "auxtrail_ptt_XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) return;
    root_ = folder;
    const std::string command =
        "tar -xJf '" + archive.string() + "' --strip-components=1 -C '" + folder + "'";
    unpacked_ = std::system(command.c_str()) == 0;
  }
  ~Archive() {
    std::error_code ignored;
    if (!root_.empty()) std::filesystem::remove_all(root_, ignored);
  }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  [[nodiscard]] bool unpacked() const { return unpacked_; }
  [[nodiscard]] const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
  bool unpacked_ = false;
};

// Family and model of the CPUs that have what packets are affected by, from the tests' own heads.
Errata packet_errata(const std::string& cpu) {
  static const std::set<std::string> kSkd007 = {"6_78", "6_94", "6_142", "6_158", "6_165", "6_166"};
  static const std::set<std::string> kSkz84 = {"6_85",  "6_106", "6_108", "6_143",
                                               "6_173", "6_174", "6_207", "19_1"};
  return {.skd007 = kSkd007.contains(cpu), .skz84 = kSkz84.contains(cpu)};
}

// Without the clock: its messages, and the columns behind a packet's.
std::vector<std::string> expected_lines(const std::string& text) {
  static const std::regex kMessage("\\[.*(calibrat|updating time|printing time).*\\]");
  static const std::regex kColumn("(.*(tsc|tma|cbr|mtc|cyc) .*) (tsc|fcr) [^ ]+");
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string blanks_apart;
    for (std::string word; words >> word;) blanks_apart += (blanks_apart.empty() ? "" : " ") + word;
    if (blanks_apart.empty() || std::regex_match(blanks_apart, kMessage)) continue;
    lines.push_back(std::regex_replace(blanks_apart, kColumn, "$1"));
  }
  return lines;
}

struct Case {
  std::string name;
  std::string cpu;
  std::filesystem::path expectation;
};

std::vector<Case> cases_in(const std::filesystem::path& root) {
  static const std::regex kExpectation("(.*)-ptdump(-cpu_(.*))?\\.exp");
  std::vector<Case> cases;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    const std::string file = entry.path().filename();
    std::smatch parts;
    if (!std::regex_match(file, parts, kExpectation)) continue;
    cases.push_back({parts[1], parts[3], entry.path()});
  }
  return cases;
}

std::string ptdump_arguments(const std::string& ptt) {
  static const std::regex kOption("; opt:ptdump ([^\n]*)");
  std::smatch option;
  return std::regex_search(ptt, option, kOption) ? option[1].str() : "";
}

TEST(PtdumpTest, SamePacketsAsInLibiptsOwnTests) {
  const char* variable = std::getenv("AUXTRAIL_TEST_DATA");
  const std::filesystem::path root = variable != nullptr ? variable : AUXTRAIL_TEST_DATA_DEFAULT;
  const auto file = root / "libipt_ptt.tar.xz";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file;
  const Archive archive(file);
  ASSERT_TRUE(archive.unpacked()) << "tar cannot unpack " << file;
  std::set<std::string> names;
  for (const Case& one : cases_in(archive.root())) {
    const std::string trace = content_of(archive.root() / (one.name + ".pt"));
    std::vector<std::string> unknown;
    const auto options =
        ptdump_options(ptdump_arguments(content_of(archive.root() / (one.name + ".ptt"))), unknown);
    EXPECT_TRUE(unknown.empty()) << one.name << ": " << unknown[0];
    EXPECT_THAT(ptdump(std::as_bytes(std::span(trace)), options, packet_errata(one.cpu)),
                ::testing::ElementsAreArray(expected_lines(content_of(one.expectation))))
        << one.name << " " << one.cpu;
    names.insert(one.name);
  }
  EXPECT_GE(names.size(), 190U);
}

}  // namespace
}  // namespace auxtrail::pt
