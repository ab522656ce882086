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

// What follows a ModRM byte. The displacement of SIB base 5 with mod 0 comes on top.
struct ModrmInfo {
  uint8_t sib;
  uint8_t disp_size;
};

constexpr Table<ModrmInfo, 256> makeModrmInfos() {
  Table<ModrmInfo, 256> infos{};
  for (unsigned i = 0; i < 0xC0; ++i) {
    const unsigned mod = i >> 6, rm = i & 7;
    infos[i].sib = rm == 4;
    infos[i].disp_size = mod == 1 ? 1 : mod == 2 || rm == 5 ? 4 : 0;
  }
  return infos;
}
constexpr Table<ModrmInfo, 256> kModrmInfos = makeModrmInfos();

// Offsets from the ModRM byte; all zero if there is none.
struct ModrmParts {
  uint8_t size_bytes = 0;
  uint8_t disp_offset = 0;
  uint8_t disp_size = 0;
  bool rip_relative = false;
};

// `code` is at the ModRM byte, of which two bytes must be readable even if it is not `present`. No
// branches.
[[gnu::always_inline]] inline ModrmParts modrmParts(const uint8_t* code, bool present) {
  const unsigned mask = present ? 0xFF : 0;
  const unsigned byte = code[0];
  const ModrmInfo info = kModrmInfos[byte];
  const bool no_base = (info.sib != 0) & (byte < 0x40) & ((code[1] & 7) == 5);
  ModrmParts parts;
  parts.disp_offset = static_cast<uint8_t>((1u + info.sib) & mask);
  parts.disp_size = static_cast<uint8_t>((info.disp_size + (no_base ? 4u : 0u)) & mask);
  parts.size_bytes = static_cast<uint8_t>(parts.disp_offset + parts.disp_size);
  parts.rip_relative = present & ((byte & 0xC7) == 5);
  return parts;
}

// Fills what every encoding fills alike. The opcode ends and ModRM, if any, starts at
// `modrm_offset`.
[[gnu::always_inline]] inline void setParts(Insn& insn, const Prefixes& prefixes, bool has_modrm,
                                            unsigned modrm_offset, const ModrmParts& parts,
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
