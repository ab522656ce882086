// What every opcode means for its length and for the flow; see instruction.cc.
//
// One Form per opcode and map. Opcodes that are undefined have one too: a processor finds the end
// of an instruction before it knows that there is none, and so does libipt, whose lengths these are
// where the SDM has none. Built at compile time from the ranges of the opcode maps in the Intel SDM
// vol. 2, appendix A, the APX architecture specification (EVEX map 4) and, for 3DNow! and XOP, the
// AMD64 manual vol. 3.
#pragma once

#include <array>
#include <cstdint>

#include "flow/instruction.h"

namespace auxtrail::flow::tables {

// The kinds of bytes behind ModRM, SIB and displacement.
enum Imm : uint8_t {
  kNo,
  k8,
  k16,
  kEnter,  // 16 and 8
  k32,
  kZ,      // 16 or 32, by operand size
  kV,      // 16, 32 or 64, by operand size
  kFar,    // offset by operand size, and a segment
  kMoffs,  // by address size
  kRel8,
  kRelZ,     // by operand size, but always 32 in 64-bit mode
  kInvalid,  // more than any instruction has room for
  kImmCount
};
constexpr uint8_t kTooLong = 32;

// The sizes of immediates in one mode under given prefixes (see context_of).
using ImmSizes = std::array<uint8_t, kImmCount>;
constexpr unsigned context_of(bool operand_size, bool address_size, bool wide) {
  return static_cast<unsigned>(operand_size) | static_cast<unsigned>(address_size) << 1 |
         static_cast<unsigned>(wide) << 2;
}

constexpr ImmSizes make_imm_sizes(ExecMode mode, bool operand_size, bool address_size, bool wide) {
  const bool is_64 = mode == ExecMode::k64;
  const bool is_16 = !wide && (mode == ExecMode::k16) != operand_size;
  const uint8_t z = is_16 ? 2 : 4;
  const uint8_t near_address = (mode == ExecMode::k16) != address_size ? 2 : 4;
  ImmSizes s{};
  s[k8] = s[kRel8] = 1;
  s[k16] = 2;
  s[kEnter] = 3;
  s[k32] = 4;
  s[kZ] = z;
  s[kV] = wide ? 8 : z;
  s[kFar] = static_cast<uint8_t>(z + 2);
  s[kMoffs] = is_64 ? (address_size ? 4 : 8) : near_address;
  s[kRelZ] = is_64 ? 4 : z;
  s[kInvalid] = kTooLong;
  return s;
}

// By mode (k16, k32, k64) and context.
inline constexpr auto kImmSizes = [] {
  std::array<std::array<ImmSizes, 8>, 3> sizes{};
  for (unsigned mode = 0; mode < 3; ++mode) {
    for (unsigned i = 0; i < 8; ++i) {
      const auto exec_mode = static_cast<ExecMode>(mode + static_cast<unsigned>(ExecMode::k16));
      sizes[mode][i] = make_imm_sizes(exec_mode, i & 1, i & 2, i & 4);
    }
  }
  return sizes;
}();

// Forms that need more than the table to tell their class or length.
enum class Rare : uint8_t {
  kNone,
  kNotIn64,   // 9a ce ea: far branches but for 64-bit mode
  kGroup7,    // 0f 01
  kMoveToCr,  // 0f 22
  kVmread,    // 0f 78: two immediates with 66 or f2 (SSE4a)
  kGroup15,   // 0f ae
  kGroup9,    // 0f c7
};

// What the flow knows of an instruction; by ModRM.reg, for ff.
struct Flow {
  InsnClass cls = InsnClass::kOther;
  uint16_t traits = 0;
};

enum Shape : uint8_t {
  kPlain,
  kCallShape,
  kJumpShape,
  kCondJumpShape,
  kReturnShape,
  kFarReturnShape,
  kIretShape,  // iret, sysret, sysexit
  kFarCallShape,
  kTrapShape,     // int1, int3, into
  kSyscallShape,  // int n, syscall, sysenter
  kFarJumpShape,
  kGroup5Shape,  // ff
  kShapeCount
};

constexpr uint16_t kFarTraits = kBindsToPip | kBindsToVmcs;

constexpr auto kFlows = [] {
  using enum InsnClass;
  std::array<std::array<Flow, 8>, kShapeCount> flows{};
  flows[kCallShape].fill({kCall});
  flows[kJumpShape].fill({kJump});
  flows[kCondJumpShape].fill({kCondJump});
  flows[kReturnShape].fill({kReturn});
  flows[kFarReturnShape].fill({kFarReturn, kFarTraits});
  flows[kIretShape].fill({kFarReturn, kFarTraits | kChangesCpl | kIsIret});
  flows[kFarCallShape].fill({kFarCall, kFarTraits});
  flows[kTrapShape].fill({kFarCall, kFarTraits | kChangesCpl});
  flows[kSyscallShape].fill({kFarCall, kFarTraits | kChangesCpl | kIsSyscall});
  flows[kFarJumpShape].fill({kFarJump, kFarTraits});
  flows[kGroup5Shape][2] = {kCallIndirect};
  flows[kGroup5Shape][3] = {kFarCall, kFarTraits};
  flows[kGroup5Shape][4] = {kJumpIndirect};
  flows[kGroup5Shape][5] = {kFarJump, kFarTraits};
  return flows;
}();

struct Form {
  uint8_t modrm_and = 0;  // the bits of kModrmSizes that count: all or none
  uint8_t modrm_or = 0;   // 1: there is a ModRM, but its mod is ignored
  Imm imm = kNo;
  uint8_t imm_regs = 0xff;  // the values of ModRM.reg that have the immediate
  Shape shape = kPlain;
  Rare rare = Rare::kNone;
  // The size of the immediate in 64-bit mode without prefixes, and what REX.W adds.
  uint8_t imm_size_64 = 0;
  uint8_t imm_wide_adds = 0;
};
using Forms = std::array<Form, 256>;

constexpr Form plain(Imm imm = kNo, Shape shape = kPlain, Rare rare = Rare::kNone) {
  return {.imm = imm, .shape = shape, .rare = rare};
}
constexpr Form modrm(Imm imm = kNo, uint8_t imm_regs = 0xff) {
  return {.modrm_and = 0xff, .imm = imm, .imm_regs = imm_regs};
}
constexpr Form modrm_register() { return {.modrm_or = 1}; }

constexpr void fill(Forms& forms, unsigned first, unsigned last, Form form) {
  for (unsigned i = first; i <= last; ++i) forms[i] = form;
}
constexpr Forms all(Form form) {
  Forms forms{};
  forms.fill(form);
  return forms;
}

// Prefixes stand for themselves only behind REX2, where they are none and nothing else either.
constexpr void refuse_prefixes(Forms& f) {
  for (const unsigned i : {0x0f, 0x26, 0x2e, 0x36, 0x3e, 0xf0, 0xf2, 0xf3}) f[i] = plain(kInvalid);
  fill(f, 0x64, 0x67, plain(kInvalid));
}

constexpr void add_branches(Forms& f) {
  fill(f, 0x70, 0x7f, plain(kRel8, kCondJumpShape));
  f[0x9a] = plain(kFar, kFarCallShape, Rare::kNotIn64);
  f[0xc2] = plain(k16, kReturnShape);
  f[0xc3] = plain(kNo, kReturnShape);
  f[0xca] = plain(k16, kFarReturnShape);
  f[0xcb] = plain(kNo, kFarReturnShape);
  f[0xcc] = plain(kNo, kTrapShape);
  f[0xcd] = plain(k8, kSyscallShape);
  f[0xce] = plain(kNo, kTrapShape, Rare::kNotIn64);
  f[0xcf] = plain(kNo, kIretShape);
  fill(f, 0xe0, 0xe3, plain(kRel8, kCondJumpShape));
  f[0xe8] = plain(kRelZ, kCallShape);
  f[0xe9] = plain(kRelZ, kJumpShape);
  f[0xea] = plain(kFar, kFarJumpShape, Rare::kNotIn64);
  f[0xeb] = plain(kRel8, kJumpShape);
  f[0xf1] = plain(kNo, kTrapShape);
  f[0xff] = modrm();
  f[0xff].shape = kGroup5Shape;
}

constexpr Forms make_one_byte() {
  Forms f = all(plain());
  for (unsigned row = 0; row < 0x40; row += 8) {
    fill(f, row, row + 3, modrm());
    f[row + 4] = plain(k8);
    f[row + 5] = plain(kZ);
  }
  fill(f, 0x62, 0x63, modrm());
  f[0x68] = plain(kZ);
  f[0x69] = modrm(kZ);
  f[0x6a] = plain(k8);
  f[0x6b] = modrm(k8);
  fill(f, 0x80, 0x83, modrm(k8));
  f[0x81] = modrm(kZ);
  fill(f, 0x84, 0x8f, modrm());
  fill(f, 0xa0, 0xa3, plain(kMoffs));
  f[0xa8] = plain(k8);
  f[0xa9] = plain(kZ);
  fill(f, 0xb0, 0xb7, plain(k8));
  fill(f, 0xb8, 0xbf, plain(kV));
  fill(f, 0xc0, 0xc1, modrm(k8));
  fill(f, 0xc4, 0xc5, modrm());
  f[0xc6] = modrm(k8);
  f[0xc7] = modrm(kZ, 0x81);  // mov and xbegin
  f[0xc8] = plain(kEnter);
  fill(f, 0xd0, 0xd3, modrm());
  fill(f, 0xd4, 0xd5, plain(k8));
  fill(f, 0xd8, 0xdf, modrm());
  fill(f, 0xe4, 0xe7, plain(k8));
  f[0xf6] = modrm(k8, 0x03);  // test
  f[0xf7] = modrm(kZ, 0x03);
  f[0xfe] = modrm();
  add_branches(f);
  refuse_prefixes(f);
  return f;
}

// The 0f map's opcodes without ModRM; those of VEX's map 1 are the same.
constexpr void add_without_modrm(Forms& f) {
  fill(f, 0x04, 0x0c, plain());
  f[0x0e] = plain();
  fill(f, 0x20, 0x23, modrm_register());
  fill(f, 0x24, 0x27, plain());
  fill(f, 0x30, 0x3f, plain());
  f[0x77] = plain();
  fill(f, 0x80, 0x8f, plain());
  fill(f, 0xa0, 0xa2, plain());
  fill(f, 0xa6, 0xa7, modrm_register());
  fill(f, 0xa8, 0xaa, plain());
  fill(f, 0xc8, 0xcf, plain());
}

constexpr void add_vector_immediates(Forms& f) {
  fill(f, 0x70, 0x73, modrm(k8));
  f[0xc2] = modrm(k8);
  fill(f, 0xc4, 0xc6, modrm(k8));
}

constexpr Forms make_two_byte() {
  Forms f = all(modrm());
  add_without_modrm(f);
  add_vector_immediates(f);
  f[0x01].rare = Rare::kGroup7;
  f[0x05] = plain(kNo, kSyscallShape);
  f[0x07] = plain(kNo, kIretShape);
  f[0x0f] = modrm(k8);  // 3DNow!
  f[0x22].rare = Rare::kMoveToCr;
  f[0x34] = plain(kNo, kSyscallShape);
  f[0x35] = plain(kNo, kIretShape);
  fill(f, 0x38, 0x3f, plain(kInvalid));  // three bytes
  f[0x78].rare = Rare::kVmread;
  fill(f, 0x80, 0x8f, plain(kRelZ, kCondJumpShape));
  f[0xa4] = modrm(k8);
  f[0xac] = modrm(k8);
  f[0xae].rare = Rare::kGroup15;
  f[0xba] = modrm(k8);
  f[0xc7].rare = Rare::kGroup9;
  return f;
}

constexpr Forms make_vex_0f() {
  Forms f = all(modrm());
  add_without_modrm(f);
  f[0x0f] = plain();
  fill(f, 0x7a, 0x7b, plain());
  add_vector_immediates(f);
  return f;
}

constexpr Forms make_evex_0f() {
  Forms f = all(modrm());
  add_vector_immediates(f);
  return f;
}

constexpr Forms make_evex_4() {
  Forms f = all(modrm());
  for (const unsigned i : {0x24, 0x2c, 0x6b, 0x80, 0x83, 0xc0, 0xc1, 0xd4}) f[i] = modrm(k8);
  for (const unsigned i : {0x69, 0x81}) f[i] = modrm(kZ);
  f[0xf6] = modrm(k8, 0x03);
  f[0xf7] = modrm(kZ, 0x03);
  return f;
}

enum MapId : uint8_t {
  kOneByte,
  kTwoByte,
  kVex0f,
  kEvex0f,
  kEvex4,
  kModrm,       // 0f 38 and whatever else has neither immediates nor exceptions
  kModrmImm8,   // 0f 3a
  kModrmImm32,  // map 7, XOP's map 10
  kNoMap,
  kMapCount
};

inline constexpr auto kForms = [] {
  std::array<Forms, kMapCount> maps = {make_one_byte(), make_two_byte(), make_vex_0f(),
                                       make_evex_0f(),  make_evex_4(),   all(modrm()),
                                       all(modrm(k8)),  all(modrm(k32)), all(plain(kInvalid))};
  constexpr ImmSizes kSizes = make_imm_sizes(ExecMode::k64, false, false, false);
  constexpr ImmSizes kWide = make_imm_sizes(ExecMode::k64, false, false, true);
  for (Forms& forms : maps) {
    for (Form& form : forms) {
      form.imm_size_64 = kSizes[form.imm];
      form.imm_wide_adds = static_cast<uint8_t>(kWide[form.imm] - kSizes[form.imm]);
    }
  }
  return maps;
}();

// Which table serves map N of a prefix. No map beyond those: VEX can number 32, EVEX 8.
inline constexpr std::array<MapId, 8> kVexMaps = {kNoMap, kVex0f, kModrm, kModrmImm8,
                                                  kModrm, kModrm, kModrm, kModrmImm32};
inline constexpr std::array<MapId, 8> kEvexMaps = {kNoMap, kEvex0f, kModrm, kModrmImm8,
                                                   kEvex4, kModrm,  kModrm, kModrmImm32};
constexpr unsigned kFirstXopMap = 8;
inline constexpr std::array<MapId, 3> kXopMaps = {kModrmImm8, kModrm, kModrmImm32};

// The bytes of ModRM, SIB and displacement by ModRM; of those with kSibMayAdd the SIB.base 5 adds
// four.
constexpr uint8_t kSibMayAdd = 0x20;  // there is a SIB, and ModRM.mod is 0
constexpr uint8_t kSizeMask = 0x0f;
using ModrmSizes = std::array<uint8_t, 256>;

constexpr uint8_t modrm_size_16(unsigned mod, unsigned rm) {
  constexpr std::array<uint8_t, 4> kDisplacements = {0, 1, 2, 0};
  return static_cast<uint8_t>(1 + (mod == 0 && rm == 6 ? 2 : kDisplacements[mod]));
}

constexpr uint8_t modrm_size_32(unsigned mod, unsigned rm) {
  constexpr std::array<uint8_t, 4> kDisplacements = {0, 1, 4, 0};
  if (mod == 0 && rm == 5) return 5;
  const auto size = static_cast<uint8_t>(1 + kDisplacements[mod]);
  if (mod == 3 || rm != 4) return size;
  return static_cast<uint8_t>((size + 1) | (mod == 0 ? kSibMayAdd : 0));
}

template <typename SizeOf>
constexpr ModrmSizes make_modrm_sizes(SizeOf size_of) {
  ModrmSizes sizes{};
  for (unsigned i = 0; i < 256; ++i) sizes[i] = size_of(i >> 6, i & 7);
  return sizes;
}
inline constexpr ModrmSizes kModrmSizes16 = make_modrm_sizes(modrm_size_16);
inline constexpr ModrmSizes kModrmSizes32 = make_modrm_sizes(modrm_size_32);

// What a byte in front of the opcode is, in 64-bit mode.
enum Lead : uint8_t {
  kOpcode,
  kEscape,  // 0f
  kRex,     // the following are none in other modes
  kRex2,
  kVex2,  // the following are prefixes in other modes if ModRM.mod is 3
  kVex3,
  kEvex,
  kXop,  // a prefix in every mode, for three maps: pop has ModRM.reg 0
  kOperandSize,
  kAddressSize,
  kRepeatNe,
  kRepeat,
  kIgnored,  // segments and lock
};

inline constexpr std::array<Lead, 256> kLeads = [] {
  std::array<Lead, 256> leads{};
  leads[0x0f] = kEscape;
  for (unsigned i = 0x40; i < 0x50; ++i) leads[i] = kRex;
  for (const unsigned i : {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0xf0}) leads[i] = kIgnored;
  leads[0x62] = kEvex;
  leads[0x66] = kOperandSize;
  leads[0x67] = kAddressSize;
  leads[0x8f] = kXop;
  leads[0xc4] = kVex3;
  leads[0xc5] = kVex2;
  leads[0xd5] = kRex2;
  leads[0xf2] = kRepeatNe;
  leads[0xf3] = kRepeat;
  return leads;
}();

}  // namespace auxtrail::flow::tables
