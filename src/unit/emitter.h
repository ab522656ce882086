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

  // Each of these appends all or, if it does not fit, nothing. Returns where it begins.
  template <class... Bytes>
  uint8_t* code(Bytes... values) {
    const uint8_t bytes[] = {static_cast<uint8_t>(values)...};
    return put(bytes);
  }
  uint8_t* u32(uint32_t value) { return put(value); }
  uint8_t* u64(uint64_t value) { return put(value); }
  void copy(const uint8_t* from, size_t count) {
    if (!has_room(count)) return;
    for (size_t i = 0; i < count; ++i) at_[i] = from[i];
    at_ += count;
  }
  // The same for up to 16 bytes where all 16 may be read.
  void copy_within_16(const uint8_t* from, size_t count) {
    uint64_t words[2];
    if (!has_room(sizeof words)) return;
    __builtin_memcpy(words, from, sizeof words);
    __builtin_memcpy(at_, words, sizeof words);
    at_ += count;
  }

  // mov fs:[offset], reg and back
  void fs_store(int32_t offset, Reg reg) { fs_access(0x89, offset, reg); }
  void fs_load(Reg reg, int32_t offset) { fs_access(0x8b, offset, reg); }
  // mov dword fs:[offset], value
  void fs_store32(int32_t offset, uint32_t value) {
    code(0x64, 0xc7, 0x04, 0x25);
    u32(static_cast<uint32_t>(offset));
    u32(value);
  }
  // jmp qword fs:[offset]
  void fs_jump(int32_t offset) {
    code(0x64, 0xff, 0x24, 0x25);
    u32(static_cast<uint32_t>(offset));
  }
  // jmp rel32 to a known address
  void jump(const uint8_t* target) {
    code(0xe9);
    u32(static_cast<uint32_t>(target - (at_ + 4)));
  }
  // Space for a rel32 to be set later; returns its address.
  uint8_t* rel32_later() { return u32(0); }
  // The four displacement bytes that make the instruction ending behind `field` reach `target`.
  static void set_rel32(uint8_t* field, const uint8_t* target) {
    const auto value = static_cast<uint32_t>(target - (field + 4));
    asm volatile("movl %1, (%0)"
                 :
                 : "r"(field), "r"(value)
                 : "memory");  // one store, aligned or not
  }
  // A nop, if need be, so that the four bytes `skip` bytes from here lie within eight aligned ones:
  // processors read and write those at once, so a rel32 there can be changed while others run it.
  void pad_for_field(size_t skip) {
    const size_t offset = (reinterpret_cast<uintptr_t>(at_) + skip) % 8;
    if (offset == 7) code(0x90);
    if (offset == 6) code(0x66, 0x90);
    if (offset == 5) code(0x0f, 0x1f, 0x00);
  }
  void align(size_t alignment) {
    while (reinterpret_cast<uintptr_t>(at_) % alignment != 0 && !overflowed_) code(0xcc);
  }

 private:
  bool has_room(size_t count) {
    if (static_cast<size_t>(limit_ - at_) >= count) return true;
    overflowed_ = true;
    return false;
  }
  template <class T>
  uint8_t* put(const T& value) {
    uint8_t* const start = at_;
    if (!has_room(sizeof(T))) return start;
    __builtin_memcpy(at_, &value, sizeof(T));
    at_ += sizeof(T);
    return start;
  }
  void fs_access(uint8_t opcode, int32_t offset, Reg reg) {
    code(0x64, 0x48, opcode, 0x04 | static_cast<uint8_t>(reg) << 3, 0x25);
    u32(static_cast<uint32_t>(offset));
  }

  uint8_t* at_;
  uint8_t* limit_;
  bool overflowed_ = false;
};

}  // namespace auxtrail::unit
