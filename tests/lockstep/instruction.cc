// See instruction.h.
#include "instruction.h"

#include <fmt/format.h>

#include <array>

namespace auxtrail::lockstep {
namespace {

constexpr uint64_t kTrapFlag = 0x100;
constexpr size_t kMaxBytes = 15;

bool Varies(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_RDTSC:
    case ZYDIS_MNEMONIC_RDTSCP:
    case ZYDIS_MNEMONIC_RDRAND:
    case ZYDIS_MNEMONIC_RDSEED:
    case ZYDIS_MNEMONIC_RDPMC:
      return true;
    default:
      return false;
  }
}

bool PushesFlags(ZydisMnemonic mnemonic) {
  return mnemonic == ZYDIS_MNEMONIC_PUSHF || mnemonic == ZYDIS_MNEMONIC_PUSHFQ;
}

// The condition codes in the order of their encoding, without the inverted ones.
bool Condition(unsigned code, uint64_t flags) {
  const bool cf = (flags & 0x1) != 0;
  const bool pf = (flags & 0x4) != 0;
  const bool zf = (flags & 0x40) != 0;
  const bool sf = (flags & 0x80) != 0;
  const bool of = (flags & 0x800) != 0;
  const std::array<bool, 8> conditions = {of, cf, zf, cf || zf, sf, pf, sf != of, zf || sf != of};
  return conditions[code >> 1] != ((code & 1) != 0);
}

// The encoding's condition code of a jcc; -1 for loop and jcxz.
int ConditionCode(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_JO:
      return 0;
    case ZYDIS_MNEMONIC_JNO:
      return 1;
    case ZYDIS_MNEMONIC_JB:
      return 2;
    case ZYDIS_MNEMONIC_JNB:
      return 3;
    case ZYDIS_MNEMONIC_JZ:
      return 4;
    case ZYDIS_MNEMONIC_JNZ:
      return 5;
    case ZYDIS_MNEMONIC_JBE:
      return 6;
    case ZYDIS_MNEMONIC_JNBE:
      return 7;
    case ZYDIS_MNEMONIC_JS:
      return 8;
    case ZYDIS_MNEMONIC_JNS:
      return 9;
    case ZYDIS_MNEMONIC_JP:
      return 10;
    case ZYDIS_MNEMONIC_JNP:
      return 11;
    case ZYDIS_MNEMONIC_JL:
      return 12;
    case ZYDIS_MNEMONIC_JNL:
      return 13;
    case ZYDIS_MNEMONIC_JLE:
      return 14;
    case ZYDIS_MNEMONIC_JNLE:
      return 15;
    default:
      return -1;
  }
}

}  // namespace

bool IsTaken(const Instruction& instruction, const Registers& registers) {
  const int code = ConditionCode(instruction.mnemonic);
  if (code >= 0) return Condition(static_cast<unsigned>(code), registers.eflags);
  const bool zero = (registers.eflags & 0x40) != 0;
  switch (instruction.mnemonic) {
    case ZYDIS_MNEMONIC_JRCXZ:
      return registers.rcx == 0;
    case ZYDIS_MNEMONIC_JECXZ:
      return static_cast<uint32_t>(registers.rcx) == 0;
    case ZYDIS_MNEMONIC_LOOP:
      return registers.rcx != 1;
    case ZYDIS_MNEMONIC_LOOPE:
      return registers.rcx != 1 && zero;
    case ZYDIS_MNEMONIC_LOOPNE:
      return registers.rcx != 1 && !zero;
    default:
      Die(std::string("no condition known for ") + ZydisMnemonicGetString(instruction.mnemonic));
  }
}

Stop StepOne(Tracee& tracee, const Instruction& instruction, uint64_t ip) {
  const Stop stop =
      instruction.emulated ? tracee.step_emulated(ip + instruction.length) : tracee.step();
  if (stop.kind == StopKind::kStep && instruction.pushes_flags) {
    const uint64_t at = tracee.registers().rsp;
    tracee.set_word(at, tracee.word(at) & ~kTrapFlag);
  }
  return stop;
}

std::string Describe(const Tracee& tracee, uint64_t ip) {
  std::array<std::byte, kMaxBytes> bytes{};
  const size_t got = tracee.read(ip, bytes);
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  ZydisDecodedInstruction decoded;
  std::string text = fmt::format("{:#x}", ip);
  if (ZYAN_FAILED(ZydisDecoderDecodeInstruction(&decoder, nullptr, bytes.data(), got, &decoded))) {
    return text + " ?";
  }
  text += fmt::format(" {} [", ZydisMnemonicGetString(decoded.mnemonic));
  for (size_t i = 0; i < decoded.length; ++i) {
    text += fmt::format("{}{:02x}", i == 0 ? "" : " ", static_cast<unsigned>(bytes[i]));
  }
  text += "]";
  for (const auto& line : tracee.maps()) {
    if (!line.contains(ip)) continue;
    text += fmt::format(" {}+{:#x}", line.path.empty() ? "anonymous" : line.path,
                        ip - line.start + line.offset);
  }
  return text;
}

InstructionTable::InstructionTable(const Tracee& tracee) : tracee_(tracee) {
  ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
}

const Instruction& InstructionTable::at(uint64_t ip) {
  const auto found = known_.find(ip);
  if (found != known_.end()) return found->second;
  return known_.emplace(ip, decode(ip)).first->second;
}

Instruction InstructionTable::decode(uint64_t ip) const {
  std::array<std::byte, kMaxBytes> bytes{};
  const size_t got = tracee_.read(ip, bytes);
  ZydisDecodedInstruction decoded;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  if (ZYAN_FAILED(ZydisDecoderDecodeFull(&decoder_, bytes.data(), got, &decoded, operands))) {
    return {};
  }
  Instruction instruction;
  instruction.valid = true;
  instruction.length = decoded.length;
  instruction.mnemonic = decoded.mnemonic;
  instruction.category = decoded.meta.category;
  instruction.conditional = decoded.meta.category == ZYDIS_CATEGORY_COND_BR;
  instruction.branch = decoded.meta.category == ZYDIS_CATEGORY_UNCOND_BR ||
                       decoded.meta.category == ZYDIS_CATEGORY_CALL ||
                       decoded.meta.category == ZYDIS_CATEGORY_RET;
  instruction.returns = decoded.meta.category == ZYDIS_CATEGORY_RET;
  instruction.system_call = decoded.mnemonic == ZYDIS_MNEMONIC_SYSCALL;
  instruction.repeats = (decoded.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE |
                                               ZYDIS_ATTRIB_HAS_REPNE)) != 0;
  instruction.pushes_flags = PushesFlags(decoded.mnemonic);
  instruction.emulated = decoded.mnemonic == ZYDIS_MNEMONIC_CPUID;
  instruction.varies = Varies(decoded.mnemonic);
  if (decoded.operand_count > 0 && operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
      operands[0].imm.is_relative) {
    instruction.direct = true;
    instruction.target = ip + decoded.length + static_cast<uint64_t>(operands[0].imm.value.s);
  }
  return instruction;
}

}  // namespace auxtrail::lockstep
