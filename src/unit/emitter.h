// Emitter: appends x86-64 machine code to the code cache.
//
// Only the handful of instruction forms that the translator needs, none of which touches the flags:
// the traced program's flags are live at every point of the translated code. Overrunning the limit
// is remembered (overflowed()), never written. Reference: Intel SDM vol. 2.
#pragma once

#include <cstddef>
#include <cstdint>

namespace auxtrail::unit {

enum class Reg : uint8_t {
  kRax = 0,
  kRcx = 1,
  kRdx = 2,
  kRbx = 3,
  kRsp = 4,
  kRbp = 5,
  kRsi = 6,
  kRdi = 7
};

class Emitter {
 public:
  Emitter(uint8_t* at, uint8_t* limit) : at_(at), limit_(limit) {}

  [[nodiscard]] uint8_t* here() const { return at_; }
  [[nodiscard]] bool overflowed() const { return overflowed_; }

  void byte(uint8_t value) {
    if (at_ >= limit_) {
      overflowed_ = true;
      return;
    }
    *at_++ = value;
  }
  template <class... Bytes>
  void code(Bytes... values) {
    (byte(static_cast<uint8_t>(values)), ...);
  }
  void copy(const uint8_t* from, size_t count) {
    for (size_t i = 0; i < count; ++i) byte(from[i]);
  }
  void u32(uint32_t value) {
    for (int i = 0; i < 4; ++i) byte(static_cast<uint8_t>(value >> (8 * i)));
  }
  void u64(uint64_t value) {
    u32(static_cast<uint32_t>(value));
    u32(static_cast<uint32_t>(value >> 32));
  }

  // mov fs:[offset], reg and back
  void fs_store(int32_t offset, Reg reg) { fs_access(0x89, offset, reg); }
  void fs_load(Reg reg, int32_t offset) { fs_access(0x8b, offset, reg); }
  // jmp qword fs:[offset]
  void fs_jump(int32_t offset) {
    code(0x64, 0xff, 0x24, 0x25);
    u32(static_cast<uint32_t>(offset));
  }
  // jmp rel32 to a known address
  void jump(const uint8_t* target) {
    byte(0xe9);
    rel32(target);
  }
  // The four displacement bytes that make the instruction ending after them reach `target`.
  void rel32(const uint8_t* target) { u32(static_cast<uint32_t>(target - (at_ + 4))); }
  // Space for a rel32 to be set later; returns its address.
  uint8_t* rel32_later() {
    uint8_t* field = at_;
    u32(0);
    return field;
  }
  static void set_rel32(uint8_t* field, const uint8_t* target) {
    const auto value = static_cast<uint32_t>(target - (field + 4));
    __atomic_store_n(reinterpret_cast<uint32_t*>(field), value, __ATOMIC_RELEASE);
  }
  // Pads with nops until `skip` bytes from here is 4-byte aligned: a rel32 there can be patched
  // atomically.
  void align_field(size_t skip) {
    while ((reinterpret_cast<uintptr_t>(at_) + skip) % 4 != 0) byte(0x90);
  }
  void align(size_t alignment) {
    while (reinterpret_cast<uintptr_t>(at_) % alignment != 0) byte(0xcc);
  }

 private:
  void fs_access(uint8_t opcode, int32_t offset, Reg reg) {
    code(0x64, 0x48, opcode, 0x04 | static_cast<uint8_t>(reg) << 3, 0x25);
    u32(static_cast<uint32_t>(offset));
  }

  uint8_t* at_;
  uint8_t* limit_;
  bool overflowed_ = false;
};

}  // namespace auxtrail::unit
