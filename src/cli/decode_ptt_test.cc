// `auxtrail decode --insns` against libipt's own textual trace tests: line by line what ptxed
// prints, through the command line.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/testing/run_command.h"
#include "pt/testing/ptt_cases.h"

namespace auxtrail::cli {
namespace {

using pt::test::PttArchive;
using pt::test::PttCase;

// The flow stands at an address that a PSB+ told; ptxed knows none before the first block.
const std::set<std::string>& deliberate_differences() {
  static const std::set<std::string> names = {
      "ptet-evd_cr2-cfe_iret-ptxed", "ptet-evd_vmxq-cfe_intr-ptxed", "ptet-evd_vmxr-cfe_rsm-ptxed",
      "ptet-evd_vmxr-evd-cr2-ptxed"};
  return names;
}

// ptxed's words as ours, and what of its output is to be compared.
struct Translated {
  Arguments words;
  bool quiet = false;
};

Translated translate(const PttArchive& archive, const PttCase& ptt) {
  static const std::map<std::string, std::string> flags = {
      {"--event:ip", "--event-ip"},
      {"--event:time", "--event-time"},
      {"--event:tick", "--event-tick"},
      {"--event:iflags", "--event-iflags"},
      {"--block:show-blocks", "--show-blocks"},
      {"--block:keep-tcal-on-ovf", "--keep-tcal-on-ovf"}};
  static const std::set<std::string> same = {"--mtc-freq", "--nom-freq", "--cpuid-0x15.eax",
                                             "--cpuid-0x15.ebx"};
  // Both of libipt's decoders print the same, our blocks always end at calls, counts are compared
  // with what is printed.
  static const std::set<std::string> dropped = {"--insn-decoder",  "--insn:keep-tcal-on-ovf",
                                                "--block-decoder", "--block:end-on-call",
                                                "--stat",          "--stat:insn",
                                                "--stat:blocks"};
  Translated result;
  result.words = {"--pt", archive.path(ptt.base + ".pt"), "--insns", "--raw",
                  fmt::format("{}:{:#x}", archive.path(ptt.base + ".bin"), ptt.org)};
  bool resyncs = false;
  std::string filter_start;
  for (size_t i = 0; i < ptt.options.size(); ++i) {
    const std::string& word = ptt.options[i];
    if (const auto flag = flags.find(word); flag != flags.end()) {
      result.words.push_back(flag->second);
    } else if (same.count(word) != 0) {
      result.words.insert(result.words.end(), {word, ptt.options.at(++i)});
    } else if (word == "--raw") {
      result.words.insert(result.words.end(), {word, archive.path(ptt.options.at(++i))});
    } else if (word == "--filter:addr0_cfg") {
      EXPECT_EQ(ptt.options.at(++i), "1");
    } else if (word == "--filter:addr0_a") {
      filter_start = ptt.options.at(++i);
    } else if (word == "--filter:addr0_b") {
      result.words.insert(result.words.end(),
                          {"--filter", filter_start + "-" + ptt.options.at(++i)});
    } else if (word == "--resync-on-error") {
      resyncs = true;
    } else if (word == "--quiet") {
      result.quiet = true;
    } else {
      EXPECT_EQ(dropped.count(word), 1) << "option unknown to this test: " << word;
    }
  }
  if (!resyncs) result.words.emplace_back("--no-resync");
  if (ptt.cpu.intel) {
    result.words.insert(
        result.words.end(),
        {"--cpu", fmt::format("{}/{}/{}", ptt.cpu.family, ptt.cpu.model, ptt.cpu.stepping)});
  }
  return result;
}

// Takes the lines "insn: N." and the like out of `lines`.
std::map<std::string, uint64_t> take_counts(std::vector<std::string>& lines) {
  std::map<std::string, uint64_t> counts;
  std::erase_if(lines, [&counts](const std::string& line) {
    for (const std::string name : {"insn", "blocks"}) {
      if (!line.starts_with(name + ": ")) continue;
      counts[name] = std::stoull(line.substr(name.size() + 2));
      return true;
    }
    return false;
  });
  return counts;
}

uint64_t count_instructions(const std::vector<std::string>& lines) {
  return static_cast<uint64_t>(std::count_if(
      lines.begin(), lines.end(), [](const std::string& line) { return line.front() != '['; }));
}

TEST(DecodePttTest, PrintsWhatPtxedPrints) {
  const PttArchive archive;
  if (archive.obstacle()) GTEST_SKIP() << *archive.obstacle();
  const auto cases = archive.cases("ptxed");
  ASSERT_GE(cases.size(), 380);
  for (const PttCase& ptt : cases) {
    SCOPED_TRACE(ptt.name);
    const Translated translated = translate(archive, ptt);
    const testing::Outcome outcome = testing::run(run_decode, translated.words);
    auto lines = pt::test::normalised_lines(outcome.out);
    auto expected = ptt.expected;
    const auto counts = take_counts(expected);
    if (counts.count("insn") != 0) {
      EXPECT_EQ(count_instructions(lines), counts.at("insn"));
    }
    if (translated.quiet) {
      std::erase_if(lines,
                    [](const auto& line) { return line.find("error") == std::string::npos; });
    }
    if (deliberate_differences().count(ptt.name) != 0) {
      EXPECT_NE(lines, expected) << "no difference any more: take it off the list";
    } else {
      EXPECT_EQ(lines, expected);
    }
    const bool has_errors = outcome.out.find("error: ") != std::string::npos;
    EXPECT_EQ(outcome.status, has_errors ? 1 : 0);
    EXPECT_EQ(outcome.err.empty(), !has_errors) << outcome.err;
  }
}

}  // namespace
}  // namespace auxtrail::cli
