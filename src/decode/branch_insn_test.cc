// classify_branch() against Zydis: the same instructions are branches, of the same kind, length and
// target.
#include "decode/branch_insn.h"

#include <Zydis/Zydis.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

namespace auxtrail::decode {
namespace {

struct Expected {
  BranchKind kind;
  int64_t relative = 0;
  bool is_relative = false;
};

std::optional<Expected> expected_of(const ZydisDecodedInstruction& insn,
                                    const ZydisDecodedOperand* operands) {
  const bool relative = insn.operand_count > 0 &&
                        operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
                        operands[0].imm.is_relative;
  const bool is_far = insn.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR;
  const int64_t displacement = relative ? operands[0].imm.value.s : 0;
  // Where transactions abort to is no branch of the instruction; the trace has events for it.
  for (const auto tsx : {ZYDIS_MNEMONIC_XBEGIN, ZYDIS_MNEMONIC_XABORT, ZYDIS_MNEMONIC_XEND}) {
    if (insn.mnemonic == tsx) return std::nullopt;
  }
  switch (insn.meta.category) {
    case ZYDIS_CATEGORY_COND_BR:
      return Expected{BranchKind::kConditional, displacement, true};
    case ZYDIS_CATEGORY_UNCOND_BR:
      if (is_far) return Expected{BranchKind::kFar};
      return relative ? Expected{BranchKind::kJump, displacement, true}
                      : Expected{BranchKind::kJumpIndirect};
    case ZYDIS_CATEGORY_CALL:
      if (is_far) return Expected{BranchKind::kFar};
      return relative ? Expected{BranchKind::kCall, displacement, true}
                      : Expected{BranchKind::kCallIndirect};
    case ZYDIS_CATEGORY_RET:
      return Expected{insn.mnemonic == ZYDIS_MNEMONIC_RET && !is_far ? BranchKind::kReturn
                                                                     : BranchKind::kFar};
    default:
      return std::nullopt;
  }
}

struct Mode {
  flow::ExecMode ours;
  ZydisMachineMode theirs;
  ZydisStackWidth stack;
};
constexpr std::array kModes = {
    Mode{flow::ExecMode::k16, ZYDIS_MACHINE_MODE_LEGACY_16, ZYDIS_STACK_WIDTH_16},
    Mode{flow::ExecMode::k32, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32},
    Mode{flow::ExecMode::k64, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64}};

TEST(BranchInsnTest, AgreesWithZydisOnRandomInstructions) {
  std::mt19937 random(11);
  size_t branches = 0;
  for (const auto& mode : kModes) {
    ZydisDecoder decoder;
    ZydisDecoderInit(&decoder, mode.theirs, mode.stack);
    for (int round = 0; round < 400'000; ++round) {
      std::array<uint8_t, 15> bytes;
      for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
      constexpr std::array<uint8_t, 8> kPrefixes = {0x66, 0x67, 0xf2, 0xf3, 0x2e, 0x3e, 0x48, 0x0f};
      if (round % 3 == 0) bytes[0] = kPrefixes[random() % kPrefixes.size()];
      if (round % 6 == 0) bytes[1] = kPrefixes[random() % kPrefixes.size()];
      ZydisDecodedInstruction insn;
      ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
      if (!ZYAN_SUCCESS(
              ZydisDecoderDecodeFull(&decoder, bytes.data(), bytes.size(), &insn, operands))) {
        continue;
      }
      if (insn.encoding != ZYDIS_INSTRUCTION_ENCODING_LEGACY) continue;  // Knights Landing's jkzd
      const auto expected = expected_of(insn, operands);
      if (!expected) continue;
      const auto ours = classify_branch(bytes, mode.ours);
      const auto text =
          fmt::format("{:02x} mode {}", fmt::join(bytes, " "), static_cast<int>(mode.ours));
      ASSERT_TRUE(ours.has_value()) << text;
      ASSERT_EQ(ours->length, insn.length) << text;
      ASSERT_EQ(static_cast<int>(ours->kind), static_cast<int>(expected->kind)) << text;
      if (expected->is_relative) {
        ASSERT_EQ(ours->relative, expected->relative) << text;
        // Cut short, it is nothing.
        ASSERT_FALSE(classify_branch(std::span(bytes).first(insn.length - 1U), mode.ours)) << text;
      }
      ++branches;
    }
  }
  EXPECT_GT(branches, 50'000);
}

TEST(BranchInsnTest, SystemCallsAndTraps) {
  const auto kind = [](std::initializer_list<uint8_t> bytes) {
    return classify_branch(std::vector<uint8_t>(bytes), flow::ExecMode::k64)->kind;
  };
  EXPECT_EQ(kind({0x0f, 0x05}), BranchKind::kSyscall);
  EXPECT_EQ(kind({0x0f, 0x34}), BranchKind::kSyscall);
  EXPECT_EQ(kind({0xcd, 0x80}), BranchKind::kSyscall);
  EXPECT_EQ(kind({0xcc}), BranchKind::kFar);
  EXPECT_EQ(kind({0x48, 0xcf}), BranchKind::kFar);
  EXPECT_FALSE(classify_branch(std::vector<uint8_t>{0x90}, flow::ExecMode::k64));
  EXPECT_FALSE(classify_branch({}, flow::ExecMode::k64));
}

}  // namespace
}  // namespace auxtrail::decode
