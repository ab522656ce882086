// See zydis_instruction_oracle.h.
#include "flow/zydis_instruction_oracle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <memory>

namespace auxtrail::flow::test {
namespace {

struct Decoded {
  ZydisDecodedInstruction insn;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

constexpr unsigned kFar = kBindsToPip | kBindsToVmcs;

Instruction make(InsnClass cls, unsigned traits = 0) {
  return {.cls = cls, .traits = static_cast<uint16_t>(traits)};
}

bool writes_cr3(const Decoded& d) {
  return d.insn.mnemonic == ZYDIS_MNEMONIC_MOV &&
         d.operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
         d.operands[0].reg.value == ZYDIS_REGISTER_CR3;
}

// call, jmp and ret of every kind.
Instruction transfer(const ZydisDecodedInstruction& insn, InsnClass direct, InsnClass indirect,
                     InsnClass far) {
  if (insn.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR) return make(far, kFar);
  return make(insn.raw.imm[0].is_relative ? direct : indirect);
}

Instruction meaning_of(const Decoded& d) {
  using enum InsnClass;
  if (writes_cr3(d)) return make(kOther, kChangesCr3 | kBindsToPip);
  switch (d.insn.mnemonic) {
    case ZYDIS_MNEMONIC_CALL:
      return transfer(d.insn, kCall, kCallIndirect, kFarCall);
    case ZYDIS_MNEMONIC_JMP:
      return transfer(d.insn, kJump, kJumpIndirect, kFarJump);
    case ZYDIS_MNEMONIC_RET:
      return transfer(d.insn, kReturn, kReturn, kFarReturn);
    case ZYDIS_MNEMONIC_INT:
    case ZYDIS_MNEMONIC_SYSCALL:
    case ZYDIS_MNEMONIC_SYSENTER:
      return make(kFarCall, kFar | kChangesCpl | kIsSyscall);
    case ZYDIS_MNEMONIC_INT1:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_INTO:
      return make(kFarCall, kFar | kChangesCpl);
    case ZYDIS_MNEMONIC_VMCALL:
      return make(kFarCall, kFar);
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
    case ZYDIS_MNEMONIC_SYSRET:
    case ZYDIS_MNEMONIC_SYSEXIT:
      return make(kFarReturn, kFar | kChangesCpl | kIsIret);
    case ZYDIS_MNEMONIC_UIRET:
      return make(kFarReturn, kFar | kIsUiret);
    case ZYDIS_MNEMONIC_VMLAUNCH:
    case ZYDIS_MNEMONIC_VMRESUME:
      return make(kFarReturn, kFar | kIsVmentry);
    case ZYDIS_MNEMONIC_PTWRITE:
      return make(kPtwrite);
    case ZYDIS_MNEMONIC_VMPTRLD:
    case ZYDIS_MNEMONIC_VMCLEAR:
    case ZYDIS_MNEMONIC_VMXON:
      return make(kOther, kBindsToVmcs);
    case ZYDIS_MNEMONIC_XBEGIN:  // where transactions abort to, an event tells
    case ZYDIS_MNEMONIC_XABORT:
    case ZYDIS_MNEMONIC_XEND:
      return make(kOther);
    default:
      return make(d.insn.meta.category == ZYDIS_CATEGORY_COND_BR ? kCondJump : kOther);
  }
}

bool is_direct(InsnClass cls) {
  return cls == InsnClass::kCall || cls == InsnClass::kJump || cls == InsnClass::kCondJump;
}

bool has_prefix(const ZydisDecodedInstruction& insn, uint8_t byte) {
  for (unsigned i = 0; i < insn.raw.prefix_count; ++i) {
    if (insn.raw.prefixes[i].value == byte) return true;
  }
  return false;
}

// What is decoded otherwise on purpose.
bool is_known_difference(const ZydisDecodedInstruction& insn) {
  // FRED's erets and eretu are newer than Zydis 4.0, to which they are clac.
  if (insn.mnemonic == ZYDIS_MNEMONIC_CLAC && (has_prefix(insn, 0xf2) || has_prefix(insn, 0xf3)))
    return true;
  // With 66 ptwrite raises #UD.
  if (insn.mnemonic == ZYDIS_MNEMONIC_PTWRITE && has_prefix(insn, 0x66)) return true;
  // f3 and f2 together are undefined; for ptwrite, as in libipt, f3 wins wherever it stands.
  return has_prefix(insn, 0xf2) && has_prefix(insn, 0xf3) && insn.opcode == 0xae;
}

// Xeon Phi's first generation has branches and immediates of its own in VEX; it has no Intel PT.
bool is_knights_corner(const ZydisDecodedInstruction& insn) {
  const auto ext = insn.meta.isa_ext;
  return ext == ZYDIS_ISA_EXT_KNC || ext == ZYDIS_ISA_EXT_KNCE || ext == ZYDIS_ISA_EXT_KNCV;
}

std::optional<Decoded> decode_full(const ZydisDecoder& decoder, std::span<const uint8_t> bytes) {
  Decoded d;
  if (!ZYAN_SUCCESS(
          ZydisDecoderDecodeFull(&decoder, bytes.data(), bytes.size(), &d.insn, d.operands)))
    return std::nullopt;
  if (is_knights_corner(d.insn)) return std::nullopt;
  return d;
}

Instruction to_instruction(const Decoded& d) {
  Instruction result = meaning_of(d);
  result.length = d.insn.length;
  if (is_direct(result.cls)) result.relative = d.insn.raw.imm[0].value.s;
  return result;
}

}  // namespace

ZydisInstructionOracle::ZydisInstructionOracle(ExecMode mode) : mode_(mode) {
  switch (mode) {
    case ExecMode::k16:
      ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LEGACY_16, ZYDIS_STACK_WIDTH_16);
      break;
    case ExecMode::k32:
      ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
      break;
    default:
      ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  }
}

std::optional<Instruction> ZydisInstructionOracle::decode(std::span<const uint8_t> bytes) const {
  const auto d = decode_full(decoder_, bytes);
  if (!d) return std::nullopt;
  return to_instruction(*d);
}

std::string ZydisInstructionOracle::difference(std::span<const uint8_t> bytes) const {
  Instruction ours;
  const bool ok = decode_instruction(bytes.data(), bytes.size(), mode_, ours);
  if (ok) {
    // Memory of its own: the address sanitizer sees every byte too many.
    auto exact = std::make_unique<uint8_t[]>(ours.length);
    std::memcpy(exact.get(), bytes.data(), ours.length);
    Instruction again;
    if (!decode_instruction(exact.get(), ours.length, mode_, again) || !same(again, ours))
      return fmt::format("{}: {}, but {} on its own", hex(bytes), text(ours), text(again));
    if (decode_instruction(exact.get(), ours.length - 1U, mode_, again))
      return fmt::format("{}: {}, and {} cut short", hex(bytes), text(ours), text(again));
  }
  const auto theirs = decode_full(decoder_, bytes);
  if (!theirs || is_known_difference(theirs->insn)) return {};
  const Instruction expected = to_instruction(*theirs);
  if (ok && same(ours, expected)) return {};
  return fmt::format("{} mode {}: {}, Zydis {} {}", hex(bytes), static_cast<int>(mode_),
                     ok ? text(ours) : "nothing", text(expected),
                     ZydisMnemonicGetString(theirs->insn.mnemonic));
}

std::string hex(std::span<const uint8_t> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, " "));
}

std::string text(const Instruction& insn) {
  return fmt::format("{} bytes, class {}, traits {:#x}, relative {:#x}", insn.length,
                     static_cast<int>(insn.cls), insn.traits, insn.relative);
}

bool same(const Instruction& a, const Instruction& b) {
  return a.length == b.length && a.cls == b.cls && a.traits == b.traits && a.relative == b.relative;
}

}  // namespace auxtrail::flow::test
