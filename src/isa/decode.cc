// Table-driven instruction decoder; see insn.h for the contract. Runs inside the traced program.
//
// One pass from left to right: legacy prefixes, REX or a vector prefix, opcode, ModRM, SIB,
// displacement, immediate. Every byte read is first checked against `end`, which also enforces the
// limit of 15 bytes.
#include "isa/opcode_tables.h"
#include "isa/vector_form.h"
#include "isa/vector_tables.h"

namespace auxtrail::isa {
namespace {

using tables::kLegacy;
using tables::kShapes;

constexpr size_t kMaxLength = 15;

enum PrefixKind : uint8_t {
  kNotPrefix,
  kRex,
  kOperandSize,
  kAddressSize,
  kRepeat,
  kRepeatNot,
  kLock,
  kSegment,
  kNullSegment,  // cs, ds, es, ss: no effect in 64-bit mode (notrack and branch hints among them)
};

constexpr std::array<uint8_t, 256> makePrefixKinds() {
  std::array<uint8_t, 256> kinds{};
  for (unsigned i = 0x40; i < 0x50; ++i) kinds[i] = kRex;
  for (const unsigned i : {0x26, 0x2E, 0x36, 0x3E}) kinds[i] = kNullSegment;
  kinds[0x64] = kinds[0x65] = kSegment;
  kinds[0x66] = kOperandSize;
  kinds[0x67] = kAddressSize;
  kinds[0xF0] = kLock;
  kinds[0xF2] = kRepeatNot;
  kinds[0xF3] = kRepeat;
  return kinds;
}
constexpr std::array<uint8_t, 256> kPrefixKinds = makePrefixKinds();

constexpr auto makeVectorIndex() {
  std::array<std::array<uint8_t, 1024>, kVectorSpaceCount> index{};
  for (const VectorRow& row : tables::kVectorRows) {
    index[row.space][row.opcode * 4u + row.pp] = row.form;
  }
  return index;
}
constexpr auto kVectorIndex = makeVectorIndex();

constexpr bool isNearBranch(InsnClass cls) {
  return cls >= InsnClass::kCondJump && cls <= InsnClass::kReturn;
}

int32_t loadSigned32(const uint8_t* p) {
  return static_cast<int32_t>(static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
                              static_cast<uint32_t>(p[2]) << 16 |
                              static_cast<uint32_t>(p[3]) << 24);
}

// The fields of a VEX, EVEX or XOP prefix, inversions undone.
struct VectorPrefix {
  VectorSpace space = kNoSpace;
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

class Decoder {
 public:
  Decoder(const uint8_t* code, size_t size_bytes)
      : begin_(code), p_(code), end_(code + (size_bytes < kMaxLength ? size_bytes : kMaxLength)) {}

  Insn run() {
    if (!prefixes() || !body()) return Insn{};
    insn_.length = static_cast<uint8_t>(p_ - begin_);
    return insn_;
  }

 private:
  [[nodiscard]] bool more() const { return p_ < end_; }
  [[nodiscard]] uint8_t offset() const { return static_cast<uint8_t>(p_ - begin_); }
  [[nodiscard]] bool rexW() const { return (insn_.rex & 8) != 0; }

  bool prefixes() {
    for (; more(); ++p_) {
      const uint8_t byte = *p_;
      const uint8_t kind = kPrefixKinds[byte];
      if (kind == kNotPrefix) return true;
      if (kind == kRex) {
        insn_.rex = byte;
        continue;
      }
      insn_.rex = 0;  // a REX that is not the last prefix has no effect
      if (!legacyPrefix(kind, byte)) return false;
    }
    return false;
  }

  bool legacyPrefix(uint8_t kind, uint8_t byte) {
    switch (kind) {
      case kOperandSize:
        insn_.operand_size_16 = true;
        return true;
      case kAddressSize:
        insn_.address_size_32 = true;
        return true;
      case kSegment:
        if (insn_.segment != 0 && insn_.segment != byte)
          return false;  // which one counts is not defined
        insn_.segment = byte;
        return true;
      case kRepeat:
      case kRepeatNot:
        if (repeat_ != 0 && repeat_ != byte) return false;  // not defined either
        repeat_ = byte;
        return true;
      case kLock:
        lock_ = true;
        return true;
      default:
        return true;
    }
  }

  bool body() {
    const uint8_t byte = *p_++;
    switch (byte) {
      case 0x0F:
        return escape0F();
      case 0xC5:
        return vex2();
      case 0xC4:
        return vex3(kVex1, 1);
      case 0x62:
        return evex();
      case 0x8F:
        // pop r/m has ModRM.reg 0; XOP's map numbers start at 8.
        return more() && (*p_ & 0x1F) >= 8 ? vex3(kXop8, 8) : legacy(0, byte);
      default:
        return legacy(0, byte);
    }
  }

  bool escape0F() {
    if (!more()) return false;
    uint8_t byte = *p_++;
    if (byte != 0x38 && byte != 0x3A) return legacy(1, byte);
    if (!more()) return false;
    const uint8_t map = byte == 0x38 ? 2 : 3;
    byte = *p_++;
    return legacy(map, byte);
  }

  bool legacy(uint8_t map, uint8_t opcode) {
    const unsigned pp = repeat_ == 0xF3 ? 2 : repeat_ == 0xF2 ? 3 : insn_.operand_size_16 ? 1 : 0;
    const Form& form = kLegacy.forms[kLegacy.index[map][opcode * 4u + pp]];
    if (!form.defined) return false;
    insn_.map = map;
    insn_.opcode = opcode;
    insn_.cls = form.cls;
    if (rexW()) insn_.operand_size_16 = false;
    uint8_t modrm_byte = 0xC0;
    if (form.modrm) {
      if (!more()) return false;
      modrm_byte = *p_;
      if (form.shape != kPlain) {
        insn_.cls = kShapes[form.shape].cls[Shape::index(modrm_byte)];
        if (insn_.cls == InsnClass::kInvalid) return false;
      }
      if (!modrm(false)) return false;
    }
    const unsigned reg = (modrm_byte >> 3) & 7;
    if (lock_ && (modrm_byte >= 0xC0 || !((form.lock_regs >> reg) & 1))) return false;
    if (insn_.operand_size_16 && isNearBranch(insn_.cls)) return false;
    if (map == 1 && (opcode == 0x20 || opcode == 0x22) && (insn_.rex & 4) != 0) return false;
    if (map == 1 && (opcode == 0x21 || opcode == 0x23) && (insn_.rex & 4) != 0) return false;
    return form.imm == Imm::kNo || immediate(form.imm, reg);
  }

  bool immediate(Imm imm, unsigned reg) {
    const uint8_t z = insn_.operand_size_16 ? 2 : 4;
    switch (imm) {
      case Imm::kNo:
        return true;
      case Imm::k8:
        if (!take(1)) return false;
        if (insn_.map == 0 && insn_.opcode == 0xCD && p_[-1] == 0x80)
          insn_.cls = InsnClass::kSyscall;
        return true;
      case Imm::k16:
        if (!take(2)) return false;
        if (insn_.cls == InsnClass::kReturn) {
          insn_.return_pop = static_cast<uint16_t>(p_[-2] | p_[-1] << 8);
        }
        return true;
      case Imm::kZ:
        return take(z);
      case Imm::kV:
        return take(rexW() ? 8 : z);
      case Imm::kMoffs:
        insn_.disp_offset = offset();
        insn_.disp_size = insn_.address_size_32 ? 4 : 8;
        return skip(insn_.disp_size);
      case Imm::kEnter:
        return take(3);
      case Imm::k8k8:
        return take(2);
      case Imm::kTest8:
        return reg > 1 || take(1);
      case Imm::kTestZ:
        return reg > 1 || take(z);
      case Imm::kRel8:
        if (!take(1)) return false;
        insn_.relative = static_cast<int8_t>(p_[-1]);
        return true;
      case Imm::kRel32:
        if (!take(4)) return false;
        insn_.relative = loadSigned32(p_ - 4);
        return true;
    }
    return false;
  }

  bool skip(uint8_t size_bytes) {
    if (end_ - p_ < size_bytes) return false;
    p_ += size_bytes;
    return true;
  }

  bool take(uint8_t size_bytes) {
    insn_.imm_offset = offset();
    insn_.imm_size = size_bytes;
    return skip(size_bytes);
  }

  // ModRM, SIB and displacement; `p_` is at the ModRM byte, which may be read.
  bool modrm(bool vsib) {
    insn_.modrm_offset = offset();
    const uint8_t byte = *p_++;
    const unsigned mod = byte >> 6;
    unsigned base = byte & 7;
    if (mod == 3) return true;
    if (base == 4) {
      if (!more()) return false;
      base = *p_++ & 7u;
    } else if (vsib) {
      return false;
    } else if (base == 5 && mod == 0) {
      insn_.rip_relative = true;
    }
    if (mod == 1) return displacement(1);
    if (mod == 2 || base == 5) return displacement(4);
    return true;
  }

  bool displacement(uint8_t size_bytes) {
    insn_.disp_offset = offset();
    insn_.disp_size = size_bytes;
    return skip(size_bytes);
  }

  // A vector prefix after 66, F2, F3, LOCK or REX is undefined.
  [[nodiscard]] bool vectorPrefixAllowed() const {
    return repeat_ == 0 && !lock_ && !insn_.operand_size_16 && insn_.rex == 0;
  }

  static void setWvp(VectorPrefix& v, uint8_t byte) {
    v.vvvv = (~byte >> 3) & 15;
    v.pp = byte & 3;
    v.wl = static_cast<uint8_t>((byte >> 7) * 4);
  }

  static void setRxb(VectorPrefix& v, uint8_t byte) {
    const unsigned rxb = ~byte & 0xE0u;
    v.zero_fields = static_cast<uint8_t>((rxb & 0x80 ? kFieldR : 0) | (rxb & 0x20 ? kFieldB : 0));
    v.reg_high = rxb & 0x80 ? 8 : 0;
    v.rm_high = static_cast<uint8_t>((rxb & 0x20 ? 8 : 0) | (rxb & 0x40 ? 16 : 0));
    v.index_high = rxb & 0x40 ? 8 : 0;
  }

  bool vex2() {
    if (end_ - p_ < 2 || !vectorPrefixAllowed()) return false;
    VectorPrefix v;
    const uint8_t byte = *p_++;
    setRxb(v, byte | 0x60);
    setWvp(v, byte & 0x7F);
    v.wl = (byte >> 2) & 1;
    v.space = kVex1;
    insn_.map = 1;
    return vector(v);
  }

  // VEX with three bytes, and XOP, which has the same layout: `first` is the space of map
  // `first_map`.
  bool vex3(VectorSpace first, uint8_t first_map) {
    if (end_ - p_ < 3 || !vectorPrefixAllowed()) return false;
    VectorPrefix v;
    const uint8_t map = *p_ & 0x1F;
    if (map < first_map || map > first_map + 2) return false;
    setRxb(v, p_[0]);
    setWvp(v, p_[1]);
    v.wl |= (p_[1] >> 2) & 1;
    v.space = static_cast<VectorSpace>(first + map - first_map);
    insn_.map = map;
    p_ += 2;
    return vector(v);
  }

  bool evex() {
    static constexpr VectorSpace kSpaces[8] = {kNoSpace, kEvex1, kEvex2, kEvex3,
                                               kNoSpace, kEvex5, kEvex6, kNoSpace};
    if (end_ - p_ < 4 || !vectorPrefixAllowed()) return false;
    VectorPrefix v;
    if ((p_[0] & 8) != 0 || (p_[1] & 4) == 0) return false;
    insn_.map = p_[0] & 7;
    v.space = kSpaces[insn_.map];
    if (v.space == kNoSpace) return false;
    setRxb(v, p_[0]);
    setWvp(v, p_[1]);
    if ((p_[0] & 0x40) == 0) v.zero_fields |= kFieldX;
    if ((p_[0] & 0x10) == 0) v.zero_fields |= kFieldR2, v.reg_high |= 16;
    if ((p_[2] & 0x08) == 0) v.zero_fields |= kFieldV2, v.vvvv |= 16, v.index_high |= 16;
    v.wl |= (p_[2] >> 5) & 3;
    v.bit_b = (p_[2] & 0x10) != 0;
    v.zeroing = (p_[2] & 0x80) != 0;
    v.aaa = p_[2] & 7;
    p_ += 3;
    return vector(v);
  }

  static bool accepts(const VectorSide& side, const VectorPrefix& v, unsigned reg) {
    const unsigned zero_fields =
        v.zero_fields | ((v.vvvv & 7) != 0 ? kFieldV : 0) | ((v.vvvv & 8) != 0 ? kFieldV3 : 0);
    const unsigned mask = v.zeroing    ? (v.aaa != 0 ? kMaskZeroing : 0)
                          : v.aaa != 0 ? kMaskSome
                                       : kMaskNone;
    return (((v.bit_b ? side.wl_b : side.wl) >> v.wl) & 1) != 0 && ((side.regs >> reg) & 1) != 0 &&
           (side.zero & zero_fields) == 0 && (side.mask & mask) != 0;
  }

  // `p_` is at the opcode; that and the next byte may be read.
  bool vector(const VectorPrefix& v) {
    insn_.opcode = *p_++;
    const unsigned id = kVectorIndex[v.space][insn_.opcode * 4u + v.pp];
    if (id == 0) return false;
    const VectorForm& form = tables::kVectorForms[id];
    insn_.cls = InsnClass::kOther;
    if (!form.modrm) return accepts(form.reg, v, 0);
    if (!more()) return false;
    const uint8_t modrm_byte = *p_;
    const unsigned reg = (modrm_byte >> 3) & 7;
    const bool memory = modrm_byte < 0xC0;
    VectorPrefix fields = v;
    if (memory) fields.zero_fields &= static_cast<uint8_t>(~(kFieldX | kFieldB));
    if (!accepts(memory ? form.memory : form.reg, fields, reg)) return false;
    if (isUndefinedShift(v, reg) || isOverlappingComplex(v, modrm_byte)) return false;
    if (!modrm(form.vsib && memory)) return false;
    if (form.vsib && memory && !distinctRegisters(v, reg)) return false;
    return form.imm_size == 0 || take(form.imm_size);
  }

  // The immediate shifts are the one EVEX opcode pair where ModRM.reg decides what the other fields
  // may be: 72 /0 /1 /4 take both W, /2 /6 only W0; 73 /2 /6 need W1, /3 /7 take neither mask nor
  // broadcast.
  [[nodiscard]] bool isUndefinedShift(const VectorPrefix& v, unsigned reg) const {
    if (v.space != kEvex1) return false;
    const bool w1 = v.wl >= 4;
    if (insn_.opcode == 0x72) return w1 && ((0x13u >> reg) & 1) == 0;
    if (insn_.opcode != 0x73) return false;
    return (reg & 1) != 0 ? v.aaa != 0 || v.bit_b : !w1;
  }

  // AVX512-FP16 complex multiplication demands a destination that is no source.
  [[nodiscard]] bool isOverlappingComplex(const VectorPrefix& v, uint8_t modrm_byte) const {
    if (v.space != kEvex6 || ((insn_.opcode & 0x7F) != 0x56 && (insn_.opcode & 0x7F) != 0x57)) {
      return false;
    }
    const unsigned data = ((modrm_byte >> 3) & 7u) | v.reg_high;
    const unsigned rm = (modrm_byte & 7u) | v.rm_high;
    return data == v.vvvv || (modrm_byte >= 0xC0 && data == rm);
  }

  // Gathers demand that destination, index and (VEX) mask register differ.
  [[nodiscard]] bool distinctRegisters(const VectorPrefix& v, unsigned reg) const {
    const unsigned sib = begin_[insn_.modrm_offset + 1];
    const unsigned index = ((sib >> 3) & 7) | v.index_high;
    const unsigned data = reg | v.reg_high;
    if (data == index) return false;
    return v.space > kVex3 || (v.vvvv != data && v.vvvv != index);
  }

  const uint8_t* begin_;
  const uint8_t* p_;
  const uint8_t* end_;
  uint8_t repeat_ = 0;
  bool lock_ = false;
  Insn insn_;
};

}  // namespace

Insn decode(const uint8_t* code, size_t size_bytes) { return Decoder(code, size_bytes).run(); }

}  // namespace auxtrail::isa
