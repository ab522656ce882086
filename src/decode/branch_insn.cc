// Prefixes, one or two opcode bytes, a displacement: all there is to a branch.
#include "decode/branch_insn.h"

#include <cstring>

namespace auxtrail::decode {
namespace {

// Walks over an instruction's bytes; reads behind the end yield 0 and are noted.
class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  uint8_t next() {
    if (position_ < bytes_.size()) return bytes_[position_++];
    failed_ = true;
    return 0;
  }
  int64_t signed_number(size_t size_bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < size_bytes; ++i) value |= uint64_t{next()} << (8 * i);
    const auto unused = static_cast<int>(64 - 8 * size_bytes);
    return static_cast<int64_t>(value << unused) >> unused;
  }
  [[nodiscard]] size_t position() const { return position_; }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  std::span<const uint8_t> bytes_;
  size_t position_ = 0;
  bool failed_ = false;
};

struct Prefixed {
  uint8_t opcode = 0;
  bool operand_size = false;
};

// Skips prefixes; the first byte that is none is the opcode.
Prefixed skip_prefixes(Cursor& cursor, CodeMode mode) {
  Prefixed result;
  for (;;) {
    const uint8_t byte = cursor.next();
    switch (byte) {
      case 0x66:
        result.operand_size = true;
        continue;
      case 0x67:
      case 0x26:
      case 0x2e:
      case 0x36:
      case 0x3e:
      case 0x64:
      case 0x65:
      case 0xf0:
      case 0xf2:
      case 0xf3:
        continue;
      default:
        break;
    }
    if (mode == CodeMode::k64 && (byte & 0xf0) == 0x40) continue;  // REX
    result.opcode = byte;
    return result;
  }
}

// The size of a near relative displacement. In 64-bit mode Intel ignores the operand size prefix.
size_t near_bytes(CodeMode mode, bool operand_size) {
  if (mode == CodeMode::k64) return 4;
  const bool is_16 = (mode == CodeMode::k16) != operand_size;
  return is_16 ? 2 : 4;
}

std::optional<BranchInsn> relative(Cursor& cursor, BranchKind kind, size_t size_bytes) {
  const int64_t displacement = cursor.signed_number(size_bytes);
  if (cursor.failed()) return std::nullopt;
  return BranchInsn{kind, static_cast<uint8_t>(cursor.position()), displacement};
}

std::optional<BranchInsn> plain(BranchKind kind) { return BranchInsn{kind, 0, 0}; }

std::optional<BranchInsn> group5(uint8_t modrm) {
  switch (modrm >> 3 & 7) {
    case 2:
      return plain(BranchKind::kCallIndirect);
    case 4:
      return plain(BranchKind::kJumpIndirect);
    case 3:
    case 5:
      return plain(BranchKind::kFar);
    default:
      return std::nullopt;
  }
}

std::optional<BranchInsn> two_byte(Cursor& cursor, CodeMode mode, bool operand_size) {
  const uint8_t opcode = cursor.next();
  if (opcode >= 0x80 && opcode <= 0x8f) {
    return relative(cursor, BranchKind::kConditional, near_bytes(mode, operand_size));
  }
  switch (opcode) {
    case 0x05:  // syscall
    case 0x34:
      return plain(BranchKind::kSyscall);  // sysenter
    case 0x07:                             // sysret
    case 0x35:
      return plain(BranchKind::kFar);  // sysexit
    case 0x01: {                       // vmcall, vmlaunch, vmresume, vmmcall
      const uint8_t modrm = cursor.next();
      const bool virtual_machine = (modrm >= 0xc1 && modrm <= 0xc3) || modrm == 0xd9;
      return virtual_machine ? plain(BranchKind::kFar) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<BranchInsn> classify_branch(std::span<const uint8_t> bytes, CodeMode mode) {
  Cursor cursor(bytes);
  const auto [opcode, operand_size] = skip_prefixes(cursor, mode);
  if (cursor.failed()) return std::nullopt;
  if (opcode >= 0x70 && opcode <= 0x7f) return relative(cursor, BranchKind::kConditional, 1);
  switch (opcode) {
    case 0xe0:
    case 0xe1:
    case 0xe2:
    case 0xe3:
      return relative(cursor, BranchKind::kConditional, 1);
    case 0xe8:
      return relative(cursor, BranchKind::kCall, near_bytes(mode, operand_size));
    case 0xe9:
      return relative(cursor, BranchKind::kJump, near_bytes(mode, operand_size));
    case 0xeb:
      return relative(cursor, BranchKind::kJump, 1);
    case 0xc2:
    case 0xc3:
      return plain(BranchKind::kReturn);
    case 0xcd:
      return plain(BranchKind::kSyscall);  // int n
    case 0xcc:                             // int3
    case 0xce:                             // into
    case 0xf1:                             // int1
    case 0xca:
    case 0xcb:
    case 0xcf:
      return plain(BranchKind::kFar);  // far ret, iret
    case 0x9a:
    case 0xea:
      return mode == CodeMode::k64 ? std::nullopt : plain(BranchKind::kFar);
    case 0xff:
      return group5(cursor.next());
    case 0x0f:
      return two_byte(cursor, mode, operand_size);
    default:
      return std::nullopt;
  }
}

}  // namespace auxtrail::decode
