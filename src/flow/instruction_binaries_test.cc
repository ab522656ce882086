// The instruction decoder on the code of real programs, with Zydis and libipt: a sweep along Zydis'
// instructions, and the two must agree with us on all of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "flow/libipt_instruction_oracle.h"
#include "flow/zydis_instruction_oracle.h"
#include "isa/elf_code.h"

namespace auxtrail::flow {
namespace {

// Large libraries are more of the same.
constexpr size_t kMaxSectionBytes = size_t{4} << 20;

struct Sweep {
  uint64_t instructions = 0, branches = 0, undecodable = 0, failures = 0;

  void fail(const std::string& text) {
    if (++failures <= 10) ADD_FAILURE() << text;
  }
};

// ud1 and ud0, whose ModRM libipt 2.0 does not know, and XOP, which no Intel processor executes.
bool is_unknown_to_libipt(std::span<const uint8_t> bytes) {
  if (bytes[0] == 0x8f) return (bytes[1] >> 3 & 7) != 0;
  return bytes[0] == 0x0f && (bytes[1] == 0xb9 || bytes[1] == 0xff);
}

class InstructionBinaries : public testing::TestWithParam<const char*> {
 protected:
  void sweep(std::span<const uint8_t> code, Sweep& s) {
    for (size_t at = 0; at < code.size();) {
      const auto bytes = code.subspan(at, std::min<size_t>(code.size() - at, 64));
      const auto expected = zydis_.decode(bytes);
      if (!expected) {
        ++s.undecodable;
        ++at;
        continue;
      }
      ++s.instructions;
      if (const std::string text = zydis_.difference(bytes); !text.empty()) s.fail(text);
      check_libipt(bytes, *expected, s);
      at += expected->length;
    }
  }

 private:
  void check_libipt(std::span<const uint8_t> bytes, const Instruction& insn, Sweep& s) {
    s.branches += insn.cls != InsnClass::kOther;
    const auto theirs = libipt_.decode(bytes.first(std::min<size_t>(bytes.size(), 15)));
    const bool is_other = theirs && theirs->iclass == ptic_other;
    if (theirs && theirs->length == insn.length && is_other == (insn.cls == InsnClass::kOther))
      return;
    if (is_unknown_to_libipt(bytes)) return;
    s.fail(fmt::format("{}: {}; libipt {} bytes", test::hex(bytes.first(insn.length)),
                       test::text(insn), theirs ? theirs->length : 0));
  }

  test::ZydisInstructionOracle zydis_{ExecMode::k64};
  test::LibiptInstructionOracle libipt_{ExecMode::k64};
};

TEST_P(InstructionBinaries, BothOraclesAgree) {
  const auto sections = isa::executable_sections(GetParam());
  if (sections.empty()) GTEST_SKIP() << GetParam() << " is not on this machine";
  Sweep s;
  for (const isa::Code& code : sections) {
    sweep(std::span(code).first(std::min(code.size(), kMaxSectionBytes)), s);
  }
  EXPECT_EQ(s.failures, 0);
  EXPECT_GT(s.branches, s.instructions / 20);
  EXPECT_LT(s.undecodable, s.instructions / 20);  // it is code
}

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(
    System, InstructionBinaries,
    testing::Values("/usr/bin/python3", "/usr/bin/node", "/usr/bin/perf", "/usr/bin/gdb",
                    "/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6",
                    "/lib/x86_64-linux-gnu/libm.so.6", "/lib/x86_64-linux-gnu/libcrypto.so.3",
                    "/lib/x86_64-linux-gnu/libstdc++.so.6", "/lib/x86_64-linux-gnu/libgmp.so.10",
                    "/lib/x86_64-linux-gnu/libLLVM-14.so.1", "/lib64/ld-linux-x86-64.so.2"),
    name_of);

}  // namespace
}  // namespace auxtrail::flow
