// The parts of an instruction that legacy and vector encodings share: what stood in front of the
// opcode, and the ModRM byte with SIB and displacement. Internal to the decoder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa/insn.h"
#include "isa/table.h"

namespace auxtrail::isa {

struct Prefixes {
  uint8_t rex = 0;      // only if it stands right before the opcode
  uint8_t segment = 0;  // 0x64, 0x65 or 0
  uint8_t repeat = 0;   // 0xf2, 0xf3 or 0
  bool lock = false;
  bool operand_size_16 = false;
  bool address_size_32 = false;
};

// All that a ModRM byte alone tells. Offsets are from that byte.
struct alignas(8) ModrmInfo {
  uint8_t size_bytes = 0;   // with SIB and displacement
  uint8_t disp_offset = 0;  // 0 if there is no displacement
  uint8_t disp_size = 0;
  uint8_t class_index =
      0;  // into Shape: memory forms by ModRM.reg, then register forms by the low six bits
  uint8_t imm_context = 0;  // kLowReg if ModRM.reg is 0 or 1, see decode.cc
  bool rip_relative = false;
  bool may_lack_base =
      false;  // SIB with mod 0: base 5 stands for a displacement without base register
};

constexpr uint8_t kLowReg = 4;
constexpr size_t kNoModrm = 256;  // the entry for instructions without ModRM: all zero

constexpr ModrmInfo make_modrm_info(unsigned byte) {
  const unsigned mod = byte >> 6, reg = (byte >> 3) & 7, rm = byte & 7;
  ModrmInfo info;
  info.class_index = static_cast<uint8_t>(mod == 3 ? 8 + (byte & 63) : reg);
  info.imm_context = reg < 2 ? kLowReg : 0;
  info.size_bytes = 1;
  if (mod == 3) return info;
  const bool sib = rm == 4;
  info.rip_relative = mod == 0 && rm == 5;
  info.may_lack_base = mod == 0 && sib;
  info.disp_size = mod == 1 ? 1 : mod == 2 || info.rip_relative ? 4 : 0;
  info.disp_offset = info.disp_size != 0 ? (sib ? 2 : 1) : 0;
  info.size_bytes = static_cast<uint8_t>((sib ? 2 : 1) + info.disp_size);
  return info;
}

constexpr Table<ModrmInfo, 257> make_modrm_infos() {
  Table<ModrmInfo, 257> infos{};
  for (unsigned i = 0; i < 256; ++i) infos[i] = make_modrm_info(i);
  return infos;
}
inline constexpr Table<ModrmInfo, 257> kModrmInfos = make_modrm_infos();

// `code` is at the ModRM byte, of which two bytes must be readable even if it is not `present`.
[[gnu::always_inline]] inline ModrmInfo read_modrm(const uint8_t* code, bool present) {
  // An index without a branch: whether there is a ModRM byte is hard to predict.
  const size_t absent = present ? 0 : 1;
  ModrmInfo info = kModrmInfos[(absent * kNoModrm) | (code[0] & (absent - 1))];
  if (info.may_lack_base && (code[1] & 7) == 5) [[unlikely]] {
    info.size_bytes = 6;
    info.disp_offset = 2;
    info.disp_size = 4;
  }
  return info;
}

// Fills what every encoding fills alike. The opcode ends and ModRM, if any, starts at
// `modrm_offset`.
[[gnu::always_inline]] inline void set_parts(Insn& insn, const Prefixes& prefixes, bool has_modrm,
                                             unsigned modrm_offset, const ModrmInfo& parts,
                                             unsigned imm_size) {
  const unsigned imm_offset = modrm_offset + parts.size_bytes;
  insn.length = static_cast<uint8_t>(imm_offset + imm_size);
  insn.modrm_offset = static_cast<uint8_t>(has_modrm ? modrm_offset : 0);
  insn.disp_offset =
      static_cast<uint8_t>(parts.disp_size != 0 ? modrm_offset + parts.disp_offset : 0);
  insn.disp_size = parts.disp_size;
  insn.imm_offset = static_cast<uint8_t>(imm_size != 0 ? imm_offset : 0);
  insn.imm_size = static_cast<uint8_t>(imm_size);
  insn.rex = prefixes.rex;
  insn.segment = prefixes.segment;
  insn.rip_relative = parts.rip_relative;
  insn.address_size_32 = prefixes.address_size_32;
}

}  // namespace auxtrail::isa
