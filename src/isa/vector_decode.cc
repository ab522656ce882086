// See vector_decode.h. Runs inside the traced program.
//
// A prefix is first taken apart into its fields, then the fields are checked against what the
// opcode's form in vector_tables.h accepts. Reference: Intel SDM vol. 2 sections 2.3 and 2.7; AMD
// APM vol. 3 section 1.8 (XOP).
#include "isa/vector_decode.h"

#include "isa/table.h"
#include "isa/vector_form.h"
#include "isa/vector_tables.h"

namespace auxtrail::isa {
namespace {

constexpr auto make_vector_index() {
  Table<Table<uint8_t, 1024>, kVectorSpaceCount> index{};
  for (const VectorRow& row : tables::kVectorRows) {
    index[row.space][row.opcode * 4u + row.pp] = row.form;
  }
  return index;
}
constexpr auto kVectorIndex = make_vector_index();

// The fields of a VEX, EVEX or XOP prefix, inversions undone.
struct VectorPrefix {
  VectorSpace space = kNoSpace;
  uint8_t size_bytes = 0;
  uint8_t map = 0;
  uint8_t opcode = 0;       // the byte after the prefix
  uint8_t zero_fields = 0;  // the ZeroField bits that are not zero
  uint8_t pp = 0;
  uint8_t wl = 0;  // W*4+L
  uint8_t aaa = 0;
  bool zeroing = false;
  bool bit_b = false;
  uint8_t vvvv = 0;        // five bits with EVEX.V'
  uint8_t reg_high = 0;    // R and R' as bits 3 and 4
  uint8_t rm_high = 0;     // B and X as bits 3 and 4, register forms
  uint8_t index_high = 0;  // X and V' as bits 3 and 4
};

void set_wvp(VectorPrefix& v, uint8_t byte) {
  v.vvvv = (~byte >> 3) & 15;
  v.pp = byte & 3;
  v.wl = static_cast<uint8_t>((byte >> 7) * 4);
}

void set_rxb(VectorPrefix& v, uint8_t byte) {
  const unsigned rxb = ~byte & 0xE0u;
  v.zero_fields = static_cast<uint8_t>((rxb & 0x80 ? kFieldR : 0) | (rxb & 0x20 ? kFieldB : 0));
  v.reg_high = rxb & 0x80 ? 8 : 0;
  v.rm_high = static_cast<uint8_t>((rxb & 0x20 ? 8 : 0) | (rxb & 0x40 ? 16 : 0));
  v.index_high = rxb & 0x40 ? 8 : 0;
}

bool read_vex2(const uint8_t* code, VectorPrefix& v) {
  set_rxb(v, code[1] | 0x60);
  set_wvp(v, code[1] & 0x7F);
  v.wl = (code[1] >> 2) & 1;
  v.size_bytes = 2;
  v.map = 1;
  v.space = kVex1;
  return true;
}

// VEX with three bytes, and XOP, which has the same layout: `first` is the space of `first_map`.
bool read_vex3(const uint8_t* code, VectorSpace first, uint8_t first_map, VectorPrefix& v) {
  set_rxb(v, code[1]);
  set_wvp(v, code[2]);
  v.wl |= (code[2] >> 2) & 1;
  v.size_bytes = 3;
  v.map = code[1] & 0x1F;
  if (v.map < first_map || v.map > first_map + 2) return false;
  v.space = static_cast<VectorSpace>(first + v.map - first_map);
  return true;
}

bool read_evex(const uint8_t* code, VectorPrefix& v) {
  static constexpr VectorSpace kSpaces[8] = {kNoSpace, kEvex1, kEvex2, kEvex3,
                                             kNoSpace, kEvex5, kEvex6, kNoSpace};
  if ((code[1] & 8) != 0 || (code[2] & 4) == 0) return false;
  set_rxb(v, code[1]);
  set_wvp(v, code[2]);
  if ((code[1] & 0x40) == 0) v.zero_fields |= kFieldX;
  if ((code[1] & 0x10) == 0) v.zero_fields |= kFieldR2, v.reg_high |= 16;
  if ((code[3] & 0x08) == 0) v.zero_fields |= kFieldV2, v.vvvv |= 16, v.index_high |= 16;
  v.wl |= (code[3] >> 5) & 3;
  v.bit_b = (code[3] & 0x10) != 0;
  v.zeroing = (code[3] & 0x80) != 0;
  v.aaa = code[3] & 7;
  v.size_bytes = 4;
  v.map = code[1] & 7;
  v.space = kSpaces[v.map];
  return v.space != kNoSpace;
}

bool read_prefix(const uint8_t* code, VectorPrefix& v) {
  switch (code[0]) {
    case 0xC5:
      return read_vex2(code, v);
    case 0xC4:
      return read_vex3(code, kVex1, 1, v);
    case 0x8F:
      return read_vex3(code, kXop8, 8, v);
    default:
      return read_evex(code, v);
  }
}

bool accepts(const VectorSide& side, const VectorPrefix& v, unsigned reg) {
  const unsigned zero_fields =
      v.zero_fields | ((v.vvvv & 7) != 0 ? kFieldV : 0) | ((v.vvvv & 8) != 0 ? kFieldV3 : 0);
  const unsigned mask = v.zeroing    ? (v.aaa != 0 ? kMaskZeroing : 0)
                        : v.aaa != 0 ? kMaskSome
                                     : kMaskNone;
  return (((v.bit_b ? side.wl_b : side.wl) >> v.wl) & 1) != 0 && ((side.regs >> reg) & 1) != 0 &&
         (side.zero & zero_fields) == 0 && (side.mask & mask) != 0;
}

// The immediate shifts are the one EVEX opcode pair where ModRM.reg decides what the other fields
// may be: 72 /0 /1 /4 take both W, /2 /6 only W0; 73 /2 /6 need W1, /3 /7 take neither mask nor
// broadcast.
bool is_undefined_shift(const VectorPrefix& v, unsigned reg) {
  if (v.space != kEvex1) return false;
  const bool w1 = v.wl >= 4;
  if (v.opcode == 0x72) return w1 && ((0x13u >> reg) & 1) == 0;
  if (v.opcode != 0x73) return false;
  return (reg & 1) != 0 ? v.aaa != 0 || v.bit_b : !w1;
}

// AVX512-FP16 complex multiplication demands a destination that is no source.
bool is_overlapping_complex(const VectorPrefix& v, uint8_t modrm_byte) {
  if (v.space != kEvex6 || ((v.opcode & 0x7F) != 0x56 && (v.opcode & 0x7F) != 0x57)) {
    return false;
  }
  const unsigned data = ((modrm_byte >> 3) & 7u) | v.reg_high;
  const unsigned rm = (modrm_byte & 7u) | v.rm_high;
  return data == v.vvvv || (modrm_byte >= 0xC0 && data == rm);
}

// Gathers demand that destination, index and (VEX) mask register differ.
bool distinct_registers(const VectorPrefix& v, unsigned reg, unsigned sib) {
  const unsigned index = ((sib >> 3) & 7) | v.index_high;
  const unsigned data = reg | v.reg_high;
  if (data == index) return false;
  return v.space > kVex3 || (v.vvvv != data && v.vvvv != index);
}

// May the ModRM byte at `code` follow?
bool accepts_modrm(const VectorForm& form, const VectorPrefix& v, const uint8_t* code) {
  const unsigned reg = (code[0] >> 3) & 7;
  const bool memory = code[0] < 0xC0;
  VectorPrefix fields = v;
  if (memory) fields.zero_fields &= static_cast<uint8_t>(~(kFieldX | kFieldB));
  if (!accepts(memory ? form.memory : form.reg, fields, reg)) return false;
  if (is_undefined_shift(v, reg) || is_overlapping_complex(v, code[0])) return false;
  return !form.vsib || !memory || ((code[0] & 7) == 4 && distinct_registers(v, reg, code[1]));
}

}  // namespace

bool decode_vector(const uint8_t* code, unsigned offset, const Prefixes& prefixes, Insn& insn) {
  // After 66, F2, F3, LOCK or REX a vector prefix is undefined.
  if (prefixes.repeat != 0 || prefixes.lock || prefixes.operand_size_16 || prefixes.rex != 0)
    return false;
  VectorPrefix v;
  if (!read_prefix(code, v)) return false;
  v.opcode = code[v.size_bytes];
  const unsigned id = kVectorIndex[v.space][v.opcode * 4u + v.pp];
  if (id == 0) return false;
  const VectorForm& form = tables::kVectorForms[id];
  const uint8_t* modrm = code + v.size_bytes + 1;
  if (form.modrm ? !accepts_modrm(form, v, modrm) : !accepts(form.reg, v, 0)) return false;
  insn.cls = InsnClass::kOther;
  insn.map = v.map;
  insn.opcode = v.opcode;
  set_parts(insn, prefixes, form.modrm, offset + v.size_bytes + 1, read_modrm(modrm, form.modrm),
            form.imm_size);
  return true;
}

}  // namespace auxtrail::isa
