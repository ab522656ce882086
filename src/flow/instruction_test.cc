// Single instructions by hand: what Zydis 4.0 and libipt 2.0 do not know (APX, FRED), and the
// traits that no oracle tells. Expectations are from the Intel SDM and the APX and FRED
// specifications.
#include "flow/instruction.h"

#include <gtest/gtest.h>

#include <vector>

namespace auxtrail::flow {
namespace {

using enum InsnClass;

constexpr unsigned kFar = kBindsToPip | kBindsToVmcs;

// Decodes exactly these bytes, which are one instruction.
Instruction whole(std::vector<uint8_t> bytes, ExecMode mode = ExecMode::k64) {
  Instruction insn;
  EXPECT_TRUE(decode_instruction(bytes.data(), bytes.size(), mode, insn));
  EXPECT_EQ(insn.length, bytes.size());
  Instruction cut;
  EXPECT_FALSE(decode_instruction(bytes.data(), bytes.size() - 1, mode, cut));
  return insn;
}

bool decodes(std::vector<uint8_t> bytes, ExecMode mode = ExecMode::k64) {
  Instruction insn;
  return decode_instruction(bytes.data(), bytes.size(), mode, insn);
}

TEST(Instruction, NothingToDecode) {
  EXPECT_FALSE(decodes({}));
  EXPECT_FALSE(decodes({0x90}, ExecMode::kUnknown));
  EXPECT_FALSE(decodes(std::vector<uint8_t>(20, 0x66)));
  // Fifteen bytes at most.
  std::vector<uint8_t> longest(14, 0x2e);
  longest.push_back(0x90);
  EXPECT_EQ(whole(longest).length, 15);
  longest.insert(longest.begin(), 0x2e);
  EXPECT_FALSE(decodes(longest));
}

TEST(Instruction, NearBranches) {
  EXPECT_EQ(whole({0xe8, 0xfe, 0xff, 0xff, 0xff}).cls, kCall);
  EXPECT_EQ(whole({0xe8, 0xfe, 0xff, 0xff, 0xff}).relative, -2);
  EXPECT_EQ(whole({0xeb, 0x80}).relative, -128);
  EXPECT_EQ(whole({0xf2, 0x0f, 0x84, 1, 2, 3, 4}).relative, 0x04030201);
  EXPECT_EQ(whole({0x67, 0xe3, 0x10}).cls, kCondJump);
  EXPECT_EQ(whole({0xff, 0x14, 0x25, 1, 2, 3, 4}).cls, kCallIndirect);
  EXPECT_EQ(whole({0x3e, 0xff, 0xe0}).cls, kJumpIndirect);
  EXPECT_EQ(whole({0xff, 0x30}).cls, kOther);  // push
  EXPECT_EQ(whole({0xf3, 0xc3}).cls, kReturn);
  EXPECT_EQ(whole({0xc2, 0x08, 0x00}).cls, kReturn);
}

// Intel ignores 66 on near branches in 64-bit mode; elsewhere it changes the displacement's size.
TEST(Instruction, NearBranchesWithOperandSize) {
  EXPECT_EQ(whole({0x66, 0xe9, 1, 0, 0, 0x80}).relative, -0x7fffffff);
  EXPECT_EQ(whole({0x66, 0xe9, 0xff, 0xff}, ExecMode::k32).relative, -1);
  EXPECT_EQ(whole({0x66, 0x0f, 0x8f, 0xfe, 0xff}, ExecMode::k32).relative, -2);
  EXPECT_EQ(whole({0xe8, 0xfd, 0xff}, ExecMode::k16).relative, -3);
  EXPECT_EQ(whole({0x66, 0xe8, 0xfd, 0xff, 0xff, 0xff}, ExecMode::k16).relative, -3);
}

TEST(Instruction, FarBranchesAndTheirTraits) {
  const auto is = [](const Instruction& insn, InsnClass cls, unsigned traits) {
    EXPECT_EQ(insn.cls, cls);
    EXPECT_EQ(insn.traits, traits);
  };
  is(whole({0xcd, 0x80}), kFarCall, kFar | kChangesCpl | kIsSyscall);
  is(whole({0xcc}), kFarCall, kFar | kChangesCpl);
  is(whole({0xf1}), kFarCall, kFar | kChangesCpl);
  is(whole({0xce}, ExecMode::k32), kFarCall, kFar | kChangesCpl);
  is(whole({0x0f, 0x05}), kFarCall, kFar | kChangesCpl | kIsSyscall);
  is(whole({0x0f, 0x34}), kFarCall, kFar | kChangesCpl | kIsSyscall);
  is(whole({0x48, 0x0f, 0x07}), kFarReturn, kFar | kChangesCpl | kIsIret);
  is(whole({0x48, 0x0f, 0x35}), kFarReturn, kFar | kChangesCpl | kIsIret);
  is(whole({0x48, 0xcf}), kFarReturn, kFar | kChangesCpl | kIsIret);
  is(whole({0xcb}), kFarReturn, kFar);
  is(whole({0xca, 8, 0}), kFarReturn, kFar);
  is(whole({0xff, 0x18}), kFarCall, kFar);
  is(whole({0xff, 0x28}), kFarJump, kFar);
  is(whole({0x9a, 1, 2, 3, 4, 5, 6}, ExecMode::k32), kFarCall, kFar);
  is(whole({0xea, 1, 2, 5, 6}, ExecMode::k16), kFarJump, kFar);
  is(whole({0xf3, 0x0f, 0x01, 0xec}), kFarReturn, kFar | kIsUiret);
  is(whole({0x0f, 0x01, 0xc1}), kFarCall, kFar);
  is(whole({0x0f, 0x01, 0xc2}), kFarReturn, kFar | kIsVmentry);
  is(whole({0x0f, 0x01, 0xc3}), kFarReturn, kFar | kIsVmentry);
}

TEST(Instruction, FredReturns) {
  EXPECT_EQ(whole({0xf2, 0x0f, 0x01, 0xca}).traits, kFar | kIsIret);  // erets
  EXPECT_EQ(whole({0xf3, 0x0f, 0x01, 0xca}).cls, kFarReturn);         // eretu
  EXPECT_EQ(whole({0x0f, 0x01, 0xca}).cls, kOther);                   // clac
}

TEST(Instruction, WhatEventsBindTo) {
  EXPECT_EQ(whole({0x0f, 0x22, 0xd8}).traits, kChangesCr3 | kBindsToPip);
  EXPECT_EQ(whole({0x0f, 0x22, 0x18}).traits, kChangesCr3 | kBindsToPip);  // mod is ignored
  EXPECT_EQ(whole({0x41, 0x0f, 0x22, 0xdf}).traits, kChangesCr3 | kBindsToPip);
  EXPECT_EQ(whole({0x44, 0x0f, 0x22, 0xd8}).traits, 0);  // cr11
  EXPECT_EQ(whole({0x0f, 0x22, 0xe0}).traits, 0);        // cr4
  EXPECT_EQ(whole({0x0f, 0x20, 0xd8}).traits, 0);        // from cr3
  EXPECT_EQ(whole({0x0f, 0xc7, 0x30}).traits, kBindsToVmcs);
  EXPECT_EQ(whole({0x0f, 0xc7, 0xf0}).traits, 0);  // rdrand
  EXPECT_EQ(whole({0xf3, 0x48, 0x0f, 0xae, 0xe0}).cls, kPtwrite);
  EXPECT_EQ(whole({0xf3, 0x0f, 0xae, 0x20}).cls, kPtwrite);
  EXPECT_EQ(whole({0x0f, 0xae, 0x20}).cls, kOther);  // xsave
  EXPECT_EQ(whole({0xc7, 0xf8, 1, 2, 3, 4}).cls, kOther);
  EXPECT_EQ(whole({0xc6, 0xf8, 1}).cls, kOther);
}

TEST(Instruction, JmpAbs) {
  const auto insn = whole({0xd5, 0x00, 0xa1, 1, 2, 3, 4, 5, 6, 7, 0x80});
  EXPECT_EQ(insn.cls, kJumpIndirect);
  EXPECT_EQ(insn.traits, kIsJmpabs);
  EXPECT_EQ(static_cast<uint64_t>(insn.relative), 0x8007060504030201);
  EXPECT_TRUE(insn.needs_packet());
  // aad in other modes; mov without REX2.
  EXPECT_EQ(whole({0xd5, 0x0a}, ExecMode::k32).cls, kOther);
  EXPECT_EQ(whole({0xa1, 1, 2, 3, 4, 5, 6, 7, 8}).cls, kOther);
}

TEST(Instruction, Rex2) {
  EXPECT_EQ(whole({0xd5, 0x18, 0x89, 0xc0}).cls, kOther);                    // mov r16, rax
  EXPECT_EQ(whole({0xd5, 0x18, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8}).cls, kOther);  // mov r16, imm64
  EXPECT_EQ(whole({0xd5, 0x10, 0xb8, 1, 2, 3, 4}).cls, kOther);              // mov r16d, imm32
  EXPECT_EQ(whole({0x66, 0xd5, 0x10, 0xb8, 1, 2}).cls, kOther);              // mov r16w, imm16
  EXPECT_EQ(whole({0xd5, 0x90, 0xaf, 0x44, 0x24, 0x08}).cls, kOther);        // imul, map 1
  EXPECT_EQ(whole({0xd5, 0x10, 0xff, 0xd0}).cls, kCallIndirect);             // call r16
  EXPECT_EQ(whole({0xd5, 0x10, 0xff, 0xe0}).cls, kJumpIndirect);             // jmp r16
  EXPECT_EQ(whole({0xd5, 0x10, 0xff, 0x18}).cls, kFarCall);
  EXPECT_EQ(whole({0xd5, 0x90, 0x22, 0xd8}).traits, kChangesCr3 | kBindsToPip);  // from r16
  EXPECT_EQ(whole({0xd5, 0xc4, 0x22, 0xd8}).traits, 0);
  EXPECT_FALSE(decodes({0xd5, 0x00}));
}

TEST(Instruction, PromotedIntegerInstructions) {
  EXPECT_EQ(whole({0x62, 0xf4, 0x7c, 0x18, 0x01, 0xc3}).length, 6);     // add, three operands
  EXPECT_EQ(whole({0x62, 0xf4, 0x7c, 0x18, 0x83, 0xc0, 5}).length, 7);  // add imm8
  EXPECT_EQ(whole({0x62, 0xf4, 0x7c, 0x18, 0x81, 0xc0, 1, 2, 3, 4}).length, 10);  // add imm32
  EXPECT_EQ(whole({0x62, 0xf4, 0x7d, 0x18, 0x81, 0xc0, 1, 2}).length, 8);         // pp 66: imm16
  EXPECT_EQ(whole({0x62, 0xf4, 0xfd, 0x18, 0x81, 0xc0, 1, 2, 3, 4}).length, 10);  // but not with W
  EXPECT_EQ(whole({0x62, 0xf4, 0x7c, 0x0a, 0xf7, 0xc0, 1, 2, 3, 4}).length, 10);  // ctest
  EXPECT_EQ(whole({0x62, 0xf4, 0x7c, 0x18, 0xf7, 0xd0}).length, 6);               // not
  EXPECT_EQ(whole({0x62, 0xf4, 0x7c, 0x18, 0xff, 0xd0}).cls, kOther);
  EXPECT_EQ(whole({0x62, 0xf5, 0x7c, 0x48, 0x58, 0xc0}).length, 6);               // vaddph
  EXPECT_EQ(whole({0x62, 0xf7, 0x7f, 0x08, 0xf8, 0xc0, 1, 2, 3, 4}).length, 10);  // urdmsr
  EXPECT_EQ(whole({0xc4, 0xe7, 0x7b, 0xf8, 0xc0, 1, 2, 3, 4}).length, 9);         // urdmsr, VEX
}

TEST(Instruction, WhatNeedsAPacket) {
  EXPECT_FALSE(whole({0x90}).needs_packet());
  EXPECT_FALSE(whole({0xe8, 0, 0, 0, 0}).needs_packet());
  EXPECT_FALSE(whole({0xeb, 0}).needs_packet());
  EXPECT_FALSE(whole({0xf3, 0x0f, 0xae, 0xe0}).needs_packet());
  EXPECT_TRUE(whole({0x74, 0}).needs_packet());
  EXPECT_TRUE(whole({0xc3}).needs_packet());
  EXPECT_TRUE(whole({0x0f, 0x05}).needs_packet());
}

}  // namespace
}  // namespace auxtrail::flow
