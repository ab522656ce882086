// The decoder on the code of real programs: a linear sweep with Zydis, and every instruction Zydis
// finds must be accepted and described alike.
//
// Hand-written assembly keeps tables between functions, so a sweep also walks through data and
// "finds" nonsense there. Such places give themselves away by undecodable bytes nearby; a refusal
// there is counted apart. Instructions left out on purpose (is_left_out) are counted apart as well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <string>
#include <vector>

#include "isa/elf_code.h"
#include "isa/insn.h"
#include "isa/zydis_oracle.h"

namespace auxtrail::isa {
namespace {

constexpr size_t kNearBytes = 512;

struct Refusal {
  size_t at;
  std::string text;
};

struct Sweep {
  uint64_t instructions = 0, left_out = 0, in_data = 0, differences = 0, undecodable = 0;
  std::vector<std::string> refused;
};

bool is_near(const std::vector<size_t>& sorted, size_t at) {
  const auto it =
      std::lower_bound(sorted.begin(), sorted.end(), at < kNearBytes ? 0 : at - kNearBytes);
  return it != sorted.end() && *it <= at + kNearBytes;
}

void sweep(const Code& code, const ZydisOracle& oracle, Sweep& s) {
  std::vector<size_t> undecodable;
  std::vector<Refusal> refusals;
  for (size_t at = 0; at < code.size();) {
    const uint8_t* p = code.data() + at;
    const size_t left = code.size() - at;
    const auto z = oracle.raw(p, left);
    const Insn insn = decode(p, left);
    const std::string text = oracle.difference(insn, p, left);
    if (!text.empty() && ++s.differences <= 10) ADD_FAILURE() << text;
    if (!z) {
      undecodable.push_back(at++);
      continue;
    }
    ++s.instructions;
    if (insn.length == 0 && is_left_out(*z)) {
      ++s.left_out;
    } else if (insn.length == 0) {
      refusals.push_back({at, hex(p, z->length) + " " + ZydisMnemonicGetString(z->mnemonic)});
    }
    at += z->length;
  }
  s.undecodable += undecodable.size();
  for (const Refusal& refusal : refusals) {
    if (is_near(undecodable, refusal.at)) {
      ++s.in_data;
    } else {
      s.refused.push_back(refusal.text);
    }
  }
}

class DecodeBinaries : public testing::TestWithParam<const char*> {};

TEST_P(DecodeBinaries, EveryInstructionIsAccepted) {
  const auto sections = executable_sections(GetParam());
  if (sections.empty()) GTEST_SKIP() << GetParam() << " is not on this machine";
  const ZydisOracle oracle;
  Sweep s;
  for (const Code& code : sections) sweep(code, oracle, s);
  std::printf(
      "             %lu instructions, refused %zu in code and %lu in data, %lu left out on "
      "purpose\n",
      s.instructions, s.refused.size(), s.in_data, s.left_out);
  EXPECT_EQ(s.differences, 0u);
  EXPECT_THAT(s.refused, testing::IsEmpty());
  // A sweep that mostly walks through data would prove nothing.
  EXPECT_LT(s.undecodable, s.instructions / 20);
  EXPECT_LT(s.left_out, s.instructions / 10'000);
}

INSTANTIATE_TEST_SUITE_P(
    System, DecodeBinaries,
    testing::Values("/usr/bin/python3", "/usr/bin/node", "/usr/bin/perf", "/usr/bin/gdb",
                    "/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6",
                    "/lib/x86_64-linux-gnu/libm.so.6", "/lib/x86_64-linux-gnu/libcrypto.so.3",
                    "/lib/x86_64-linux-gnu/libstdc++.so.6", "/lib/x86_64-linux-gnu/libgmp.so.10",
                    "/lib/x86_64-linux-gnu/libLLVM-14.so.1", "/lib64/ld-linux-x86-64.so.2"),
    [](const auto& param) {
      std::string name = param.param;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

}  // namespace
}  // namespace auxtrail::isa
