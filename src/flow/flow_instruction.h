// What the flow decoder asks about an instruction, beyond what Instruction says itself.
#pragma once

#include "flow/instruction.h"

namespace auxtrail::flow {

inline bool has_trait(const Instruction& insn, InsnTrait trait) {
  return (insn.traits & trait) != 0;
}

// Where the flow goes from `insn` at `ip`; false if only a packet can tell.
inline bool next_ip(const Instruction& insn, uint64_t ip, uint64_t& next) {
  if (insn.needs_packet()) return false;
  next = ip + insn.length;
  if (insn.cls == InsnClass::kCall || insn.cls == InsnClass::kJump) {
    next += static_cast<uint64_t>(insn.relative);
  }
  return true;
}

inline bool is_branch(const Instruction& insn) {
  return insn.cls != InsnClass::kOther && insn.cls != InsnClass::kPtwrite;
}

inline bool changes_cr3(const Instruction& insn) { return has_trait(insn, kChangesCr3); }
inline bool binds_to_pip(const Instruction& insn) { return has_trait(insn, kBindsToPip); }
inline bool binds_to_vmcs(const Instruction& insn) { return has_trait(insn, kBindsToVmcs); }
inline bool is_ptwrite(const Instruction& insn) { return insn.cls == InsnClass::kPtwrite; }
inline bool is_iret(const Instruction& insn) { return has_trait(insn, kIsIret); }
inline bool is_vmentry(const Instruction& insn) { return has_trait(insn, kIsVmentry); }
inline bool is_uiret(const Instruction& insn) { return has_trait(insn, kIsUiret); }

}  // namespace auxtrail::flow
