// Table-driven length and class decoder; see instruction.h for the contract.
//
// One pass from left to right: prefixes, opcode, ModRM, SIB, displacement, immediate. Bytes are
// never checked one by one: kSlack bytes are always readable (short input is copied and padded
// first), and the length is compared with the limit at the end. That is sound because whatever a
// byte decides, the instruction contains that byte: a decision made by padding ends beyond the
// limit. What is no instruction gets a length beyond every limit. The common path has few branches,
// as their outcome is as good as random.
#include "flow/instruction.h"

#include <cstring>

#include "flow/instruction_tables.h"

namespace auxtrail::flow {
namespace {

using namespace tables;

constexpr size_t kMaxLength = 15;
constexpr size_t kMaxPrefixes = kMaxLength - 1;
// Prefixes, EVEX and opcode, ModRM, SIB, displacement, and a load at the immediate.
constexpr size_t kSlack = 40;
static_assert(kMaxPrefixes + 5 + 2 + 4 + 8 <= kSlack);

struct Prefixes {
  bool operand_size = false;
  bool address_size = false;
  bool wide = false;        // REX.W and its kin
  bool high_reg = false;    // REX.R, and R4 of REX2
  bool repeat = false;      // f3 among them
  uint8_t last_repeat = 0;  // f2 or f3
  bool rex2 = false;
};

uint64_t load64(const uint8_t* p) {
  uint64_t value = 0;
  std::memcpy(&value, p, sizeof value);  // little-endian, like the code
  return value;
}

// The signed number of `size` bytes at `p`, if `is_wanted`. No branches.
int64_t signed_if(bool is_wanted, const uint8_t* p, unsigned size) {
  const unsigned unused = (64 - 8 * size) & 63;
  return static_cast<int64_t>(load64(p) << unused) >> unused & -int64_t{is_wanted};
}

void set_flow(Instruction& insn, InsnClass cls, unsigned traits) {
  insn.cls = cls;
  insn.traits = static_cast<uint16_t>(traits);
}

void decode_group7(uint8_t modrm, Prefixes prefixes, Instruction& insn) {
  switch (modrm) {
    case 0xc1:  // vmcall
      return set_flow(insn, InsnClass::kFarCall, kFarTraits);
    case 0xc2:  // vmlaunch
    case 0xc3:  // vmresume
      return set_flow(insn, InsnClass::kFarReturn, kFarTraits | kIsVmentry);
    case 0xca:  // erets, eretu; without f2 and f3 clac
      if (prefixes.last_repeat == 0) return;
      return set_flow(insn, InsnClass::kFarReturn, kFarTraits | kIsIret);
    case 0xec:
      return set_flow(insn, InsnClass::kFarReturn, kFarTraits | kIsUiret);
    default:
      return;
  }
}

// What the tables cannot say. `modrm` is the byte behind the opcode.
[[gnu::noinline]] void decode_rare(Rare rare, uint8_t modrm, ExecMode mode, Prefixes prefixes,
                                   Instruction& insn) {
  const unsigned reg = modrm >> 3 & 7;
  switch (rare) {
    case Rare::kNone:
      return;
    case Rare::kNotIn64:
      if (mode == ExecMode::k64) set_flow(insn, InsnClass::kOther, 0);
      return;
    case Rare::kGroup7:
      return decode_group7(modrm, prefixes, insn);
    case Rare::kMoveToCr:
      if (reg == 3 && !prefixes.high_reg) insn.traits = kChangesCr3 | kBindsToPip;
      return;
    case Rare::kVmread:
      if (prefixes.operand_size || prefixes.last_repeat == 0xf2) insn.length += 2;
      return;
    case Rare::kGroup15:
      if (reg == 4 && prefixes.repeat && !prefixes.operand_size) insn.cls = InsnClass::kPtwrite;
      return;
    case Rare::kGroup9:
      if (reg == 6 && modrm < 0xc0) insn.traits = kBindsToVmcs;
      return;
  }
}

struct Opcode {
  const uint8_t* next;  // behind it
  unsigned offset;      // of `next` in the instruction
  MapId map;
  uint8_t byte;
};

// The bytes of ModRM, SIB and displacement. Arithmetic where a compiler would make branches of it.
[[gnu::always_inline]] inline unsigned modrm_size(const Form& form, uint8_t size, uint8_t sib) {
  const unsigned parts = (size & form.modrm_and) | form.modrm_or;
  const unsigned sib_adds = parts / kSibMayAdd & static_cast<unsigned>((sib & 7) == 5);
  return (parts & kSizeMask) + 4 * sib_adds;
}

// Fills `insn` once all sizes are known. `tail` is at the immediate, `offset` into the instruction.
[[gnu::always_inline]] inline void finish(const Form& form, uint8_t modrm, const uint8_t* tail,
                                          unsigned offset, unsigned imm_size, ExecMode mode,
                                          Prefixes prefixes, Instruction& insn) {
  const Flow flow = kFlows[form.shape][modrm >> 3 & 7];
  insn.length = static_cast<uint8_t>(offset + imm_size);
  insn.cls = flow.cls;
  insn.traits = flow.traits;
  insn.relative = signed_if(form.imm == kRel8 || form.imm == kRelZ, tail, imm_size);
  if (form.rare != Rare::kNone) [[unlikely]]
    decode_rare(form.rare, modrm, mode, prefixes, insn);
}

unsigned imm_is_there(const Form& form, uint8_t modrm) {
  return form.imm_regs >> (modrm >> 3 & 7) & 1U;
}

// 64-bit mode, no prefix but REX, one-byte map or 0f. False for whatever else there is. The time is
// that of the chain from one instruction's length to the next one's, so the bytes come from one
// load and the tables are asked side by side.
[[gnu::always_inline]] inline bool decode_common(const uint8_t* code, Instruction& insn) {
  uint64_t bytes = load64(code);
  const unsigned rex = (bytes & 0xf0) == 0x40 ? 1 : 0;
  const auto rex_byte = static_cast<uint8_t>(bytes & (0U - rex));
  bytes >>= 8 * rex;
  if (kLeads[bytes & 0xff] > kEscape) return false;
  const unsigned map = (bytes & 0xff) == 0x0f ? 1 : 0;
  bytes >>= 8 * map;
  const auto modrm = static_cast<uint8_t>(bytes >> 8);
  const Form& form = kForms[map][bytes & 0xff];
  const unsigned offset =
      rex + map + 1 + modrm_size(form, kModrmSizes32[modrm], static_cast<uint8_t>(bytes >> 16));
  const Prefixes prefixes{.wide = (rex_byte & 8) != 0, .high_reg = (rex_byte & 4) != 0};
  const unsigned wide_adds = form.imm_wide_adds & (0U - (rex_byte >> 3 & 1U));
  const unsigned imm_size = (form.imm_size_64 + wide_adds) & (0U - imm_is_there(form, modrm));
  finish(form, modrm, code + offset, offset, imm_size, ExecMode::k64, prefixes, insn);
  return insn.length <= kMaxLength;
}

// Decodes what follows the opcode, whatever the mode and the prefixes.
void decode_tail(const Opcode& opcode, ExecMode mode, const Prefixes& prefixes, Instruction& insn) {
  const Form& form = kForms[opcode.map][opcode.byte];
  const auto mode_index = static_cast<unsigned>(mode) - static_cast<unsigned>(ExecMode::k16);
  const bool is_16 = mode != ExecMode::k64 && (mode == ExecMode::k16) != prefixes.address_size;
  const uint8_t modrm = opcode.next[0];
  const unsigned size =
      modrm_size(form, (is_16 ? kModrmSizes16 : kModrmSizes32)[modrm], opcode.next[1]);
  const ImmSizes& sizes = kImmSizes[mode_index][context_of(prefixes.operand_size,
                                                           prefixes.address_size, prefixes.wide)];
  const unsigned imm_size = sizes[form.imm] & (0U - imm_is_there(form, modrm));
  finish(form, modrm, opcode.next + size, opcode.offset + size, imm_size, mode, prefixes, insn);
}

// Whether the byte at `code`, of the given kind, is no opcode in this mode.
bool is_prefix(Lead lead, const uint8_t* code, ExecMode mode) {
  switch (lead) {
    case kOpcode:
    case kEscape:
      return false;
    case kRex:
    case kRex2:
      return mode == ExecMode::k64;
    case kVex2:
    case kVex3:
    case kEvex:
      return mode == ExecMode::k64 || code[1] >= 0xc0;
    case kXop:
      return (code[1] & 0x1f) - kFirstXopMap < kXopMaps.size();
    default:
      return true;
  }
}

// The last two bits of a vector prefix's payload stand for a legacy prefix.
void add_substitute(unsigned pp, Prefixes& prefixes) {
  if (pp == 1) prefixes.operand_size = true;
}

Opcode after_three_byte_prefix(const uint8_t* code, unsigned offset, bool is_xop,
                               Prefixes& prefixes) {
  const unsigned map = code[1] & 0x1f;
  prefixes.wide = (code[2] & 0x80) != 0;
  add_substitute(code[2] & 3, prefixes);
  MapId id = kNoMap;
  if (!is_xop && map < kVexMaps.size()) id = kVexMaps[map];
  if (is_xop) id = kXopMaps[map - kFirstXopMap];
  return {code + 4, offset + 4, id, code[3]};
}

// The opcode behind the prefix that ends them all: REX2 or a vector prefix.
Opcode after_last_prefix(Lead lead, const uint8_t* code, unsigned offset, Prefixes& prefixes) {
  switch (lead) {
    case kRex2:
      prefixes.rex2 = true;
      prefixes.wide = (code[1] & 0x08) != 0;
      prefixes.high_reg = (code[1] & 0x44) != 0;
      return {code + 3, offset + 3, code[1] < 0x80 ? kOneByte : kTwoByte, code[2]};
    case kVex2:
      add_substitute(code[1] & 3, prefixes);
      return {code + 3, offset + 3, kVex0f, code[2]};
    case kEvex:
      prefixes.wide = (code[2] & 0x80) != 0;
      add_substitute(code[2] & 3, prefixes);
      return {code + 5, offset + 5, kEvexMaps[code[1] & 7], code[4]};
    default:
      return after_three_byte_prefix(code, offset, lead == kXop, prefixes);
  }
}

Opcode after_legacy_prefixes(const uint8_t* code, unsigned offset, uint8_t rex,
                             Prefixes& prefixes) {
  prefixes.wide = (rex & 8) != 0;
  prefixes.high_reg = (rex & 4) != 0;
  if (code[0] != 0x0f) return {code + 1, offset + 1, kOneByte, code[0]};
  if (code[1] == 0x3a) return {code + 3, offset + 3, kModrmImm8, code[2]};
  // 38, and its like without a meaning.
  if ((code[1] & 0xf8) == 0x38) return {code + 3, offset + 3, kModrm, code[2]};
  return {code + 2, offset + 2, kTwoByte, code[1]};
}

// Reads the prefixes; the opcode behind them, or one of kNoMap if there are too many.
Opcode read_prefixes(const uint8_t* code, ExecMode mode, Prefixes& prefixes) {
  uint8_t rex = 0;  // only if it is the last of them
  for (unsigned offset = 0; offset <= kMaxPrefixes; ++offset) {
    const uint8_t* p = code + offset;
    const Lead lead = kLeads[p[0]];
    if (!is_prefix(lead, p, mode)) return after_legacy_prefixes(p, offset, rex, prefixes);
    if (lead >= kRex2 && lead <= kXop) return after_last_prefix(lead, p, offset, prefixes);
    rex = lead == kRex ? p[0] : 0;
    prefixes.operand_size |= lead == kOperandSize;
    prefixes.address_size |= lead == kAddressSize;
    prefixes.repeat |= lead == kRepeat;
    if (lead == kRepeat || lead == kRepeatNe) prefixes.last_repeat = p[0];
  }
  return {code + kMaxLength, kMaxLength, kNoMap, 0};
}

// REX2 takes some opcodes away, branches among them, and gives jmpabs for it.
void apply_rex2(const Opcode& opcode, const Prefixes& prefixes, Instruction& insn) {
  const bool is_sysenter_or_exit =
      opcode.map == kTwoByte && (opcode.byte == 0x34 || opcode.byte == 0x35);
  const bool is_relative = insn.cls == InsnClass::kCall || insn.cls == InsnClass::kJump ||
                           insn.cls == InsnClass::kCondJump;
  if (is_sysenter_or_exit || is_relative) {
    set_flow(insn, InsnClass::kOther, 0);
    insn.relative = 0;
  }
  const bool is_jmpabs = opcode.map == kOneByte && opcode.byte == 0xa1 && !prefixes.wide &&
                         !prefixes.address_size && !prefixes.operand_size;
  if (is_jmpabs) {
    set_flow(insn, InsnClass::kJumpIndirect, kIsJmpabs);
    insn.relative = static_cast<int64_t>(load64(opcode.next));
  }
}

[[gnu::noinline]] void decode_general(const uint8_t* code, ExecMode mode, Instruction& insn) {
  Prefixes prefixes;
  const Opcode opcode = read_prefixes(code, mode, prefixes);
  decode_tail(opcode, mode, prefixes, insn);
  if (prefixes.rex2) apply_rex2(opcode, prefixes, insn);
}

}  // namespace

bool decode_instruction(const uint8_t* code, size_t size_bytes, ExecMode mode, Instruction& insn) {
  if (size_bytes == 0 || mode == ExecMode::kUnknown) return false;
  const size_t limit = size_bytes < kMaxLength ? size_bytes : kMaxLength;
  uint8_t padded[kSlack];
  if (size_bytes < kSlack) [[unlikely]] {
    std::memset(padded, 0, sizeof padded);
    std::memcpy(padded, code, limit);
    code = padded;
  }
  if (mode != ExecMode::k64 || !decode_common(code, insn)) decode_general(code, mode, insn);
  return insn.length <= limit;
}

}  // namespace auxtrail::flow
