// What stands at the end of a block: which kind of branch, and where it falls through to.
//
// libipt tells a block's last instruction only coarsely ("jump") or not at all; telling direct from
// indirect and taken from not taken needs the bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "decode/branch.h"
#include "flow/instruction.h"

namespace auxtrail::decode {

struct BranchInsn {
  BranchKind kind = BranchKind::kJump;
  uint8_t length = 0;    // bytes; 0: not known
  int64_t relative = 0;  // of kinds with a relative target, the displacement
};

// The kind of branch that `insn` is, or nothing if it is none.
std::optional<BranchKind> branch_kind(const flow::Instruction& insn);

// The branch that `bytes` begin with, or nothing if they begin with another instruction or are cut
// short.
std::optional<BranchInsn> classify_branch(std::span<const uint8_t> bytes, flow::ExecMode mode);

}  // namespace auxtrail::decode
