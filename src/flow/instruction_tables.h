// Sizes of the parts of an instruction, and what its leading bytes are; see instruction.cc. What
// the opcodes mean stands in opcode_forms.h. Built at compile time. Reference: Intel SDM vol. 2,
// chapter 2.
#pragma once

#include <array>
#include <cstdint>

#include "flow/event.h"

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
