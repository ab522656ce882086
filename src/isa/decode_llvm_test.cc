// A second opinion: the length the decoder gives against LLVM's disassembler, over random
// instructions of every map. The tables of the vector encodings were found with Zydis' help, so
// Zydis alone does not vouch for them.
//
// LLVM 14 lacks some instructions and takes some prefixes for instructions of their own; those are
// counted.
#include <gtest/gtest.h>
#include <llvm-c/Disassembler.h>
#include <llvm-c/Target.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "isa/insn.h"
#include "isa/zydis_oracle.h"

namespace auxtrail::isa {
namespace {

class LlvmOracle {
 public:
  LlvmOracle() {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86Disassembler();
    context_ = LLVMCreateDisasm("x86_64-unknown-linux-gnu", nullptr, 0, nullptr, nullptr);
  }
  ~LlvmOracle() { LLVMDisasmDispose(context_); }
  LlvmOracle(const LlvmOracle&) = delete;
  LlvmOracle& operator=(const LlvmOracle&) = delete;

  // 0 if LLVM does not know the instruction.
  size_t length(std::array<uint8_t, 16>& code) {
    return LLVMDisasmInstruction(context_, code.data(), code.size(), 0, text_.data(), text_.size());
  }
  // Did the last answer name mere prefixes?
  [[nodiscard]] bool said_prefix() const {
    static const std::set<std::string> prefixes = {
        "rep",   "repne", "lock", "xacquire", "xrelease", "addr32", "data16",
        "rex64", "cs",    "ds",   "es",       "fs",       "gs",     "ss"};
    std::istringstream words(text());
    return std::all_of(std::istream_iterator<std::string>(words), {},
                       [](const std::string& word) { return prefixes.contains(word); });
  }
  [[nodiscard]] std::string text() const { return text_.data(); }

 private:
  LLVMDisasmContextRef context_;
  std::array<char, 128> text_{};
};

struct Start {
  const char* name;
  std::array<uint8_t, 3> bytes;
  unsigned count;
};

void PrintTo(const Start& start, std::ostream* out) { *out << start.name; }

class DecodeLlvm : public testing::TestWithParam<Start> {};

TEST_P(DecodeLlvm, SameLength) {
  LlvmOracle llvm;
  std::mt19937_64 random(99);
  unsigned compared = 0, unknown = 0, different = 0;
  while (compared < 60'000) {
    std::array<uint8_t, 16> code;
    const uint64_t low = random(), high = random();
    std::memcpy(code.data(), &low, 8);
    std::memcpy(code.data() + 8, &high, 8);
    std::memcpy(code.data(), GetParam().bytes.data(), GetParam().count);
    if (GetParam().bytes[0] == 0x62) code[1] = static_cast<uint8_t>(code[1] & 0xF7);
    const Insn insn = decode(code.data(), code.size());
    if (insn.length == 0) continue;
    ++compared;
    const size_t length = llvm.length(code);
    if (length == 0 || llvm.said_prefix()) {
      ++unknown;
    } else if (length != insn.length && ++different <= 20) {
      ADD_FAILURE() << hex(code.data(), insn.length) << ": LLVM says " << length << llvm.text();
    }
  }
  EXPECT_EQ(different, 0u);
  EXPECT_LT(unknown, compared / 8) << "the second opinion has lost its subject";
  std::printf("             %u compared, %u unknown to LLVM\n", compared, unknown);
}

INSTANTIATE_TEST_SUITE_P(
    Starts, DecodeLlvm,
    testing::Values(Start{"any", {}, 0}, Start{"rex", {0x48}, 1}, Start{"map0f", {0x0F}, 1},
                    Start{"map0f_66", {0x66, 0x0F}, 2}, Start{"map0f_f3", {0xF3, 0x0F}, 2},
                    Start{"map0f_f2", {0xF2, 0x0F}, 2}, Start{"map0f38", {0x66, 0x0F, 0x38}, 3},
                    Start{"map0f3a", {0x66, 0x0F, 0x3A}, 3}, Start{"vex2", {0xC5}, 1},
                    Start{"vex3", {0xC4}, 1}, Start{"xop", {0x8F}, 1}, Start{"evex", {0x62}, 1}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace auxtrail::isa
