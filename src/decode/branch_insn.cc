// Classes of instructions (flow/) as kinds of branches.
#include "decode/branch_insn.h"

namespace auxtrail::decode {

std::optional<BranchKind> branch_kind(const flow::Instruction& insn) {
  using flow::InsnClass;
  switch (insn.cls) {
    case InsnClass::kCall:
      return BranchKind::kCall;
    case InsnClass::kCallIndirect:
      return BranchKind::kCallIndirect;
    case InsnClass::kReturn:
      return BranchKind::kReturn;
    case InsnClass::kJump:
      return BranchKind::kJump;
    case InsnClass::kJumpIndirect:
      return BranchKind::kJumpIndirect;
    case InsnClass::kCondJump:
      return BranchKind::kConditional;
    case InsnClass::kFarCall:
      return (insn.traits & flow::kIsSyscall) != 0 ? BranchKind::kSyscall : BranchKind::kFar;
    case InsnClass::kFarReturn:
    case InsnClass::kFarJump:
      return BranchKind::kFar;
    case InsnClass::kOther:
    case InsnClass::kPtwrite:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<BranchInsn> classify_branch(std::span<const uint8_t> bytes, flow::ExecMode mode) {
  flow::Instruction insn;
  if (!flow::decode_instruction(bytes.data(), bytes.size(), mode, insn)) return std::nullopt;
  const auto kind = branch_kind(insn);
  if (!kind) return std::nullopt;
  return BranchInsn{*kind, insn.length, insn.relative};
}

}  // namespace auxtrail::decode
