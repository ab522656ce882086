// See zydis_oracle.h.
#include "isa/zydis_oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace auxtrail::isa {
namespace {

bool is_knights_corner(const ZydisDecodedInstruction& insn) {
  const auto ext = insn.meta.isa_ext;
  return ext == ZYDIS_ISA_EXT_KNC || ext == ZYDIS_ISA_EXT_KNCE || ext == ZYDIS_ISA_EXT_KNCV;
}

// Falls through at its own address only; user mode may run these, so privilege does not tell.
bool is_special_in_user_mode(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_XBEGIN:
    case ZYDIS_MNEMONIC_XEND:
    case ZYDIS_MNEMONIC_XABORT:
    case ZYDIS_MNEMONIC_XTEST:
    case ZYDIS_MNEMONIC_XSUSLDTRK:
    case ZYDIS_MNEMONIC_XRESLDTRK:
    case ZYDIS_MNEMONIC_POPF:
    case ZYDIS_MNEMONIC_POPFD:
    case ZYDIS_MNEMONIC_POPFQ:
    case ZYDIS_MNEMONIC_WRFSBASE:
    case ZYDIS_MNEMONIC_WRGSBASE:
    case ZYDIS_MNEMONIC_WRPKRU:
    case ZYDIS_MNEMONIC_IN:
    case ZYDIS_MNEMONIC_OUT:
    case ZYDIS_MNEMONIC_INSB:
    case ZYDIS_MNEMONIC_INSW:
    case ZYDIS_MNEMONIC_INSD:
    case ZYDIS_MNEMONIC_OUTSB:
    case ZYDIS_MNEMONIC_OUTSW:
    case ZYDIS_MNEMONIC_OUTSD:
    case ZYDIS_MNEMONIC_CLI:
    case ZYDIS_MNEMONIC_STI:
    case ZYDIS_MNEMONIC_LGDT:  // privileged, but Zydis 4.0 does not say so
    case ZYDIS_MNEMONIC_CLAC:
    case ZYDIS_MNEMONIC_STAC:
    case ZYDIS_MNEMONIC_LSS:
    case ZYDIS_MNEMONIC_LFS:
    case ZYDIS_MNEMONIC_LGS:
    case ZYDIS_MNEMONIC_ENCLU:
    case ZYDIS_MNEMONIC_ENCLS:
    case ZYDIS_MNEMONIC_ENCLV:
    case ZYDIS_MNEMONIC_VMFUNC:
    case ZYDIS_MNEMONIC_VMREAD:
    case ZYDIS_MNEMONIC_VMWRITE:
    case ZYDIS_MNEMONIC_VMPTRLD:
    case ZYDIS_MNEMONIC_VMPTRST:
    case ZYDIS_MNEMONIC_VMCLEAR:
    case ZYDIS_MNEMONIC_VMXON:
    case ZYDIS_MNEMONIC_VMXOFF:
    case ZYDIS_MNEMONIC_INVEPT:
    case ZYDIS_MNEMONIC_INVVPID:
    case ZYDIS_MNEMONIC_INVPCID:
    case ZYDIS_MNEMONIC_VMLOAD:
    case ZYDIS_MNEMONIC_VMSAVE:
    case ZYDIS_MNEMONIC_STGI:
    case ZYDIS_MNEMONIC_CLGI:
    case ZYDIS_MNEMONIC_INVLPGA:
    case ZYDIS_MNEMONIC_INVLPGB:
    case ZYDIS_MNEMONIC_TLBSYNC:
    case ZYDIS_MNEMONIC_RMPADJUST:
    case ZYDIS_MNEMONIC_PSMASH:
    case ZYDIS_MNEMONIC_PVALIDATE:
    case ZYDIS_MNEMONIC_PCONFIG:
    case ZYDIS_MNEMONIC_GETSEC:
    case ZYDIS_MNEMONIC_RSM:
    case ZYDIS_MNEMONIC_XSETBV:
    case ZYDIS_MNEMONIC_XSAVES:
    case ZYDIS_MNEMONIC_XSAVES64:
    case ZYDIS_MNEMONIC_XRSTORS:
    case ZYDIS_MNEMONIC_XRSTORS64:
    case ZYDIS_MNEMONIC_MONITOR:
    case ZYDIS_MNEMONIC_MWAIT:
    case ZYDIS_MNEMONIC_HRESET:
    case ZYDIS_MNEMONIC_ENQCMDS:
    case ZYDIS_MNEMONIC_INCSSPD:
    case ZYDIS_MNEMONIC_INCSSPQ:
    case ZYDIS_MNEMONIC_RSTORSSP:
    case ZYDIS_MNEMONIC_SAVEPREVSSP:
    case ZYDIS_MNEMONIC_SETSSBSY:
    case ZYDIS_MNEMONIC_CLRSSBSY:
    case ZYDIS_MNEMONIC_WRSSD:
    case ZYDIS_MNEMONIC_WRSSQ:
    case ZYDIS_MNEMONIC_WRUSSD:
    case ZYDIS_MNEMONIC_WRUSSQ:
    case ZYDIS_MNEMONIC_TESTUI:
    case ZYDIS_MNEMONIC_CLUI:
    case ZYDIS_MNEMONIC_STUI:
    case ZYDIS_MNEMONIC_SENDUIPI:
      return true;
    default:
      return false;
  }
}

bool is_far(const ZydisDecodedInstruction& insn) {
  switch (insn.mnemonic) {
    case ZYDIS_MNEMONIC_CALL:
    case ZYDIS_MNEMONIC_JMP:
    case ZYDIS_MNEMONIC_RET:
      return insn.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR;
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
    case ZYDIS_MNEMONIC_UIRET:
    case ZYDIS_MNEMONIC_SYSRET:
    case ZYDIS_MNEMONIC_SYSEXIT:
    case ZYDIS_MNEMONIC_VMCALL:
    case ZYDIS_MNEMONIC_VMMCALL:
    case ZYDIS_MNEMONIC_VMLAUNCH:
    case ZYDIS_MNEMONIC_VMRESUME:
    case ZYDIS_MNEMONIC_VMRUN:
    case ZYDIS_MNEMONIC_SKINIT:
      return true;
    case ZYDIS_MNEMONIC_INT:
      return insn.raw.imm[0].value.u != 0x80;
    default:
      return false;
  }
}

// mov to a segment register, pop fs, pop gs: the only writers of segment registers besides lss and
// its kin.
bool writes_segment(const ZydisDecodedInstruction& insn) {
  if (insn.mnemonic == ZYDIS_MNEMONIC_MOV)
    return insn.opcode == 0x8E && insn.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT;
  return insn.mnemonic == ZYDIS_MNEMONIC_POP && insn.opcode_map == ZYDIS_OPCODE_MAP_0F;
}

}  // namespace

InsnClass class_of(const ZydisDecodedInstruction& insn) {
  if (is_far(insn)) return InsnClass::kFar;
  switch (insn.mnemonic) {
    case ZYDIS_MNEMONIC_SYSCALL:
    case ZYDIS_MNEMONIC_SYSENTER:
    case ZYDIS_MNEMONIC_INT:
      return InsnClass::kSyscall;
    case ZYDIS_MNEMONIC_INT1:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2:
    case ZYDIS_MNEMONIC_HLT:
      return InsnClass::kTrap;
    case ZYDIS_MNEMONIC_RET:
      return InsnClass::kReturn;
    case ZYDIS_MNEMONIC_CALL:
      return insn.raw.imm[0].is_relative ? InsnClass::kCall : InsnClass::kCallIndirect;
    case ZYDIS_MNEMONIC_JMP:
      return insn.raw.imm[0].is_relative ? InsnClass::kJump : InsnClass::kJumpIndirect;
    case ZYDIS_MNEMONIC_LOOP:
    case ZYDIS_MNEMONIC_LOOPE:
    case ZYDIS_MNEMONIC_LOOPNE:
    case ZYDIS_MNEMONIC_JCXZ:
    case ZYDIS_MNEMONIC_JECXZ:
    case ZYDIS_MNEMONIC_JRCXZ:
      return InsnClass::kLoop;
    default:
      break;
  }
  if (is_special_in_user_mode(insn.mnemonic) || writes_segment(insn)) return InsnClass::kSpecial;
  if ((insn.attributes & ZYDIS_ATTRIB_IS_PRIVILEGED) != 0) return InsnClass::kSpecial;
  if (insn.meta.category == ZYDIS_CATEGORY_COND_BR) return InsnClass::kCondJump;
  return InsnClass::kOther;
}

bool is_left_out(const ZydisDecodedInstruction& insn) {
  switch (insn.meta.isa_ext) {
    case ZYDIS_ISA_EXT_AMX_BF16:
    case ZYDIS_ISA_EXT_AMX_INT8:
    case ZYDIS_ISA_EXT_AMX_TILE:
    case ZYDIS_ISA_EXT_AMD3DNOW:
    case ZYDIS_ISA_EXT_MPX:
    case ZYDIS_ISA_EXT_PADLOCK:
    case ZYDIS_ISA_EXT_KEYLOCKER:
    case ZYDIS_ISA_EXT_KEYLOCKER_WIDE:
      return true;
    default:
      return is_knights_corner(insn);
  }
}

std::optional<ZydisDecodedInstruction> ZydisOracle::raw(const uint8_t* code, size_t size) const {
  ZydisDecodedInstruction insn;
  const auto status = ZydisDecoderDecodeInstruction(&decoder_, nullptr, code, size, &insn);
  if (!ZYAN_SUCCESS(status)) return std::nullopt;
  return insn;
}

std::optional<Insn> ZydisOracle::decode(const uint8_t* code, size_t size) const {
  const auto z = raw(code, size);
  if (!z || is_knights_corner(*z)) return std::nullopt;
  Insn insn;
  insn.length = z->length;
  insn.cls = class_of(*z);
  insn.opcode = z->opcode;
  const bool has_modrm = (z->attributes & ZYDIS_ATTRIB_HAS_MODRM) != 0;
  insn.modrm_offset = has_modrm ? z->raw.modrm.offset : uint8_t{0};
  insn.disp_offset = z->raw.disp.offset;
  insn.disp_size = static_cast<uint8_t>(z->raw.disp.size / 8);
  insn.imm_offset = z->raw.imm[0].offset;
  insn.imm_size = static_cast<uint8_t>((z->raw.imm[0].size + z->raw.imm[1].size) / 8);
  insn.rip_relative = has_modrm && z->raw.modrm.mod == 0 && z->raw.modrm.rm == 5;
  if (insn.cls >= InsnClass::kCondJump && insn.cls <= InsnClass::kCall) {
    insn.relative = z->raw.imm[0].value.s;
  }
  if (insn.cls == InsnClass::kReturn)
    insn.return_pop = static_cast<uint16_t>(z->raw.imm[0].value.u);
  for (unsigned i = 0; i < z->raw.prefix_count; ++i) {
    if (z->raw.prefixes[i].value == 0x67) insn.address_size_32 = true;
  }
  return insn;
}

std::string ZydisOracle::difference(const Insn& got, const uint8_t* code, size_t size) const {
  if (got.cls == InsnClass::kInvalid) return got.length == 0 ? "" : "invalid with a length";
  const auto want = decode(code, size);
  std::string text;
  const auto check = [&text](const char* what, int64_t is, int64_t expected) {
    if (is != expected) text += fmt::format(" {} {} not {};", what, is, expected);
  };
  if (!want) {
    text = " Zydis refuses it;";
  } else {
    check("length", got.length, want->length);
    check("class", static_cast<int>(got.cls), static_cast<int>(want->cls));
    check("opcode", got.opcode, want->opcode);
    check("modrm_offset", got.modrm_offset, want->modrm_offset);
    check("disp_offset", got.disp_offset, want->disp_offset);
    check("disp_size", got.disp_size, want->disp_size);
    check("imm_offset", got.imm_offset, want->imm_offset);
    check("imm_size", got.imm_size, want->imm_size);
    check("rip_relative", got.rip_relative, want->rip_relative);
    check("relative", got.relative, want->relative);
    check("return_pop", got.return_pop, want->return_pop);
    check("address_size_32", got.address_size_32, want->address_size_32);
  }
  return text.empty() ? text : hex(code, std::min<size_t>(size, 15)) + ":" + text;
}

std::string hex(const uint8_t* code, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += fmt::format("{}{:02x}", i == 0 ? "" : " ", code[i]);
  return text;
}

}  // namespace auxtrail::isa
