// What stands at the end of a block: which kind of branch, and where it falls through to.
//
// libipt tells a block's last instruction only coarsely ("jump") or not at all; telling direct from
// indirect and taken from not taken needs the bytes. Only branches are recognised, so no general
// length decoder is needed, and every mode works (the kernel of 32-bit traces included). Reference:
// Intel SDM vol. 2, appendix A.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "decode/branch.h"

namespace auxtrail::decode {

enum class CodeMode : uint8_t { k16, k32, k64 };

struct BranchInsn {
  BranchKind kind = BranchKind::kJump;
  uint8_t length = 0;    // bytes; only for the kinds with a relative target, else 0
  int64_t relative = 0;  // of those, the displacement
};

// The branch that `bytes` begin with, or nothing if they begin with another instruction or are cut
// short.
std::optional<BranchInsn> classify_branch(std::span<const uint8_t> bytes, CodeMode mode);

}  // namespace auxtrail::decode
