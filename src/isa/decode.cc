// Table-driven instruction decoder; see insn.h for the contract. Runs inside the traced program.
//
// One pass from left to right: legacy prefixes, REX or a vector prefix, opcode, ModRM, SIB,
// displacement, immediate. The bytes read are never checked one by one: at least kSlack bytes are
// always readable (short input is copied and padded with zeros first) and the length is compared
// with the limit at the end. That is sound because whatever a byte decides, the instruction
// contains that byte, so a decision made by padding ends beyond the limit. The common path has few
// branches, as their outcome is as good as random: a mispredicted one costs more than all the rest.
#include "isa/insn.h"
#include "isa/instruction_parts.h"
#include "isa/opcode_tables.h"
#include "isa/vector_decode.h"

namespace auxtrail::isa {
namespace {

using tables::kLegacyForms;
using tables::kShapes;

constexpr size_t kMaxLength = 15;
constexpr size_t kMaxPrefixes = kMaxLength - 1;
constexpr size_t kSlack = 32;
// prefixes, 0f 38 and opcode, ModRM, SIB, displacement, and a load of the immediate
static_assert(kMaxPrefixes + 3 + 2 + 4 + 4 <= kSlack);

// What a byte in front of the opcode is; kOpcode stands for every opcode of the one-byte map.
enum Lead : uint8_t {
  kOpcode,
  kRex,
  kOperandSize,
  kAddressSize,
  kRepeat,
  kLock,
  kSegment,
  kNullSegment,  // cs, ds, es, ss: no effect in 64-bit mode (notrack and branch hints among them)
  kEscape,       // 0f and the vector prefixes: the last lead
};

constexpr Table<Lead, 256> make_leads() {
  Table<Lead, 256> leads{};
  for (unsigned i = 0x40; i < 0x50; ++i) leads[i] = kRex;
  for (const unsigned i : {0x26, 0x2E, 0x36, 0x3E}) leads[i] = kNullSegment;
  for (const unsigned i : {0x0F, 0x62, 0x8F, 0xC4, 0xC5}) leads[i] = kEscape;
  leads[0x64] = leads[0x65] = kSegment;
  leads[0x66] = kOperandSize;
  leads[0x67] = kAddressSize;
  leads[0xF0] = kLock;
  leads[0xF2] = leads[0xF3] = kRepeat;
  return leads;
}
constexpr Table<Lead, 256> kLeads = make_leads();

// The size of every kind of immediate, by REX.W, operand size 16 and "ModRM.reg is 0 or 1".
constexpr unsigned context_of_imm(bool wide, bool operand_size_16) {
  return static_cast<unsigned>(wide) | static_cast<unsigned>(operand_size_16) << 1;  // and kLowReg
}

constexpr uint8_t size_of_imm(Imm imm, bool wide, bool operand_size_16, bool low_reg) {
  const uint8_t z = operand_size_16 ? 2 : 4;
  switch (imm) {
    case Imm::k8:
    case Imm::kRel8:
    case Imm::kInt8:
      return 1;
    case Imm::k16:
    case Imm::k8k8:
    case Imm::kReturn16:
      return 2;
    case Imm::kEnter:
      return 3;
    case Imm::kRel32:
      return 4;
    case Imm::kZ:
      return z;
    case Imm::kV:
      return wide ? 8 : z;
    case Imm::kTest8:
      return low_reg ? 1 : 0;
    case Imm::kTestZ:
      return low_reg ? z : 0;
    default:
      return 0;
  }
}

constexpr auto make_imm_sizes() {
  Table<Table<uint8_t, 8>, static_cast<size_t>(Imm::kCount)> sizes{};
  for (size_t kind = 0; kind < sizes.size(); ++kind) {
    for (unsigned i = 0; i < 8; ++i) {
      sizes[kind][i] = size_of_imm(static_cast<Imm>(kind), i & 1, i & 2, i & kLowReg);
    }
  }
  return sizes;
}
constexpr auto kImmSizes = make_imm_sizes();

constexpr bool is_near_branch(InsnClass cls) {
  return cls >= InsnClass::kCondJump && cls <= InsnClass::kReturn;
}

uint32_t load32(const uint8_t* p) {
  return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
         static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24;
}

// The branch displacement at `code`, 0 for other immediates. Four bytes are read; no branches.
[[gnu::always_inline]] inline int32_t relative_target(Imm kind, const uint8_t* code) {
  const uint32_t is8 = kind == Imm::kRel8 ? 1 : 0;
  const uint32_t is32 = kind == Imm::kRel32 ? 1 : 0;
  const uint32_t shift = is8 * 24;
  const auto value = static_cast<int32_t>(load32(code) << shift) >> shift;
  return value & -static_cast<int32_t>(is8 | is32);
}

// Immediates that decide more than the length. `code` is at the immediate.
[[gnu::noinline]] bool rare_immediate(Imm imm, const uint8_t* code, Insn& insn) {
  switch (imm) {
    case Imm::kReturn16:
      insn.return_pop = static_cast<uint16_t>(code[0] | code[1] << 8);
      return true;
    case Imm::kInt8:
      if (code[0] == 0x80) insn.cls = InsnClass::kSyscall;
      return true;
    case Imm::kMoffs:
      insn.disp_offset = insn.length;
      insn.disp_size = insn.address_size_32 ? 4 : 8;
      insn.length = static_cast<uint8_t>(insn.length + insn.disp_size);
      return true;
    default:  // kControl
      return (insn.rex & 4) == 0;
  }
}

// Decodes what follows the opcode; `code` is there, `offset` bytes into the instruction. False if
// invalid. Inlined twice: with most prefixes known to be absent, and in general.
[[gnu::always_inline]] inline bool decode_legacy(const uint8_t* code, unsigned offset,
                                                 Prefixes prefixes, unsigned map, unsigned opcode,
                                                 unsigned pp, Insn& insn) {
  const Form form = kLegacyForms[map][opcode * 4 + pp];
  const uint8_t modrm = code[0];
  const unsigned reg = (modrm >> 3) & 7;
  const ModrmInfo parts = read_modrm(code, form.modrm);
  const InsnClass cls = kShapes[form.shape].cls[parts.class_index];
  const bool wide = (prefixes.rex & 8) != 0;
  const bool operand_size_16 = prefixes.operand_size_16 && !wide;
  const unsigned context = parts.imm_context | context_of_imm(wide, operand_size_16);
  const unsigned imm_size = kImmSizes[static_cast<size_t>(form.imm)][context];
  if (cls == InsnClass::kInvalid) return false;
  if (prefixes.lock && (modrm >= 0xC0 || !((form.lock_regs >> reg) & 1))) return false;
  if (operand_size_16 && is_near_branch(cls)) return false;
  insn.cls = cls;
  insn.map = static_cast<uint8_t>(map);
  insn.opcode = static_cast<uint8_t>(opcode);
  insn.operand_size_16 = operand_size_16;
  set_parts(insn, prefixes, form.modrm, offset, parts, imm_size);
  const uint8_t* imm = code + parts.size_bytes;
  insn.relative = relative_target(form.imm, imm);
  return form.imm < kFirstRareImm || rare_immediate(form.imm, imm, insn);
}

// No prefix but REX, one-byte map or 0f. False also for whatever else there is: prefixes, 0f 38, 0f
// 3a and the vector prefixes are undefined as opcodes.
bool decode_common(const uint8_t* code, Insn& insn) {
  const unsigned rex = (code[0] & 0xF0) == 0x40 ? 1 : 0;
  const uint8_t* p = code + rex;
  const unsigned map = p[0] == 0x0F ? 1 : 0;
  const unsigned opcode = p[map];
  const Prefixes prefixes{.rex = static_cast<uint8_t>(code[0] & (0u - rex))};
  return decode_legacy(p + 1 + map, rex + 1 + map, prefixes, map, opcode, 0, insn);
}

// Notes one prefix other than REX; false if it contradicts an earlier one.
bool add_prefix(Lead lead, uint8_t byte, Prefixes& prefixes) {
  prefixes.rex = 0;  // a REX that is not the last prefix has no effect
  switch (lead) {
    case kOperandSize:
      prefixes.operand_size_16 = true;
      return true;
    case kAddressSize:
      prefixes.address_size_32 = true;
      return true;
    case kLock:
      prefixes.lock = true;
      return true;
    case kSegment:  // of two different ones it is not defined which counts
      if (prefixes.segment != 0 && prefixes.segment != byte) return false;
      prefixes.segment = byte;
      return true;
    case kRepeat:  // nor here
      if (prefixes.repeat != 0 && prefixes.repeat != byte) return false;
      prefixes.repeat = byte;
      return true;
    default:
      return true;
  }
}

// Reads the leads; returns the offset of the opcode or escape, or kMaxLength if there is none.
unsigned read_prefixes(const uint8_t* code, Prefixes& prefixes) {
  for (unsigned offset = 0; offset <= kMaxPrefixes; ++offset) {
    const uint8_t byte = code[offset];
    const Lead lead = kLeads[byte];
    if (lead == kOpcode || lead == kEscape) return offset;
    if (lead == kRex) {
      prefixes.rex = byte;
    } else if (!add_prefix(lead, byte, prefixes)) {
      break;
    }
  }
  return kMaxLength;
}

bool is_vector_prefix(const uint8_t* code) {
  switch (code[0]) {
    case 0x62:
    case 0xC4:
    case 0xC5:
      return true;
    case 0x8F:  // pop r/m has ModRM.reg 0, XOP's map numbers start at 8
      return (code[1] & 0x1F) >= 8;
    default:
      return false;
  }
}

[[gnu::noinline]] bool decode_general(const uint8_t* code, Insn& insn) {
  Prefixes prefixes;
  unsigned offset = read_prefixes(code, prefixes);
  if (offset == kMaxLength) return false;
  if (is_vector_prefix(code + offset)) return decode_vector(code + offset, offset, prefixes, insn);
  unsigned map = 0;
  unsigned opcode = code[offset++];
  if (opcode == 0x0F) {
    opcode = code[offset++];
    map = opcode == 0x38 ? 2 : opcode == 0x3A ? 3 : 1;
    if (map != 1) opcode = code[offset++];
  }
  const unsigned pp = prefixes.repeat == 0xF3   ? 2
                      : prefixes.repeat == 0xF2 ? 3
                                                : (prefixes.operand_size_16 ? 1 : 0);
  return decode_legacy(code + offset, offset, prefixes, map, opcode, pp, insn);
}

// A plain loop could be compiled to a call of memcpy, which this layer does not have.
void copy_padded(uint8_t (&to)[kSlack], const uint8_t* from, size_t size_bytes) {
  for (size_t i = 0; i < kSlack; ++i) {
    to[i] = i < size_bytes ? from[i] : 0;
    asm volatile("" : : "r"(to + i) : "memory");
  }
}

}  // namespace

Insn decode(const uint8_t* code, size_t size_bytes) {
  uint8_t padded[kSlack];
  if (size_bytes < kSlack) [[unlikely]] {
    copy_padded(padded, code, size_bytes);
    code = padded;
  }
  const size_t limit = size_bytes < kMaxLength ? size_bytes : kMaxLength;
  Insn insn;
  if (!(decode_common(code, insn) || decode_general(code, insn)) || insn.length > limit)
    insn = Insn{};
  return insn;
}

}  // namespace auxtrail::isa
