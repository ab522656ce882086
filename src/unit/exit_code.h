// The code of a superblock's direct exits.
//
// Most conditionals never leave their superblock while they are traced, so their exits start as the
// shortest code that can name itself: "unlogged". The first time it is taken, C++ code logs its
// entry and replaces it by the complete form, which logs inline and jumps straight to the next
// superblock: "logged". Both leave for C++ code through an arena's stubs with the exit's number in
// TlsBlock::target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "unit/emitter.h"
#include "unit/passage.h"
#include "unit/tls_offsets.h"

namespace auxtrail::unit {

// A direct way out of a superblock. Immutable but for `field` and `state`, which change together
// under the translator lock.
struct Exit {
  enum State : uint8_t {
    kUnlogged,  // `field` belongs to the program's conditional and leads to the unlogged code
    kLogged,    // `field` belongs to the logged code's last jump
    kEnd,       // logged; the instruction at `target` can't be translated: the window ends
  };
  uint64_t target : 48;  // program address
  uint64_t reason : 8;   // kEnd: a channel::Reason
  uint64_t : 8;
  uint64_t field : 48;  // address of the rel32 that can lead to the next superblock
  uint64_t state : 8;
};
static_assert(sizeof(Exit) == 16);

// What the stubs hand over: the exit's number, and whether its entry is in the log already.
constexpr uint32_t exit_token(uint32_t number, bool logged) {
  return number << 1 | static_cast<uint32_t>(logged);
}

inline constexpr size_t kMaxUnloggedExitBytes = 20;
inline constexpr size_t kMaxLoggedExitBytes = 96;

inline void emit_unlogged_exit(Emitter& emit, const TlsOffsets& tls, uint32_t number,
                               const uint8_t* unlogged_stub) {
  emit.fs_store32(tls.target, exit_token(number, false));
  emit.jump(unlogged_stub);
}

// At rcx.
inline void emit_log_word(Emitter& emit, LogWord word) {
  emit.code(0xc7, 0x01);  // mov dword [rcx], ...
  emit.u32(word.low());
  emit.code(0xc7, 0x41, 0x04);  // mov dword [rcx+4], ...
  emit.u32(word.high());
}

// Logs its word and goes to `next`, or out of the cache if that is
// null or the log is full. The program's rcx is in TlsBlock::rcx when it goes out. Returns the
// rel32 that leads to `next`.
inline uint8_t* emit_logged_exit(Emitter& emit, const TlsOffsets& tls, LogWord word,
                                 const uint8_t* logged_stub, const uint8_t* next) {
  emit.fs_store(tls.rcx, Reg::kRcx);
  emit.fs_load(Reg::kRcx, tls.log);
  emit_log_word(emit, word);
  emit.code(0x48, 0x8d, 0x49, word.units() * 8);  // lea rcx, [rcx+...]
  emit.fs_store(tls.log, Reg::kRcx);
  emit.code(0x0f, 0xb6, 0xcd);         // movzx ecx, ch
  uint8_t* full = emit.code(0xe3, 0);  // jrcxz out
  emit.fs_load(Reg::kRcx, tls.rcx);
  emit.pad_for_field(1);
  emit.code(0xe9);  // jmp next
  uint8_t* field = emit.rel32_later();
  uint8_t* out = emit.here();
  emit.fs_store32(tls.target, exit_token(word.number(), true));
  emit.jump(logged_stub);
  if (emit.overflowed()) return nullptr;
  full[1] = static_cast<uint8_t>(out - (full + 2));
  Emitter::set_rel32(field, next != nullptr ? next : out);
  return field;
}

}  // namespace auxtrail::unit
