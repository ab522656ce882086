// Restartable sequences: code that must not run from the code cache.
//
// The kernel aborts a sequence by comparing the interrupted IP with the range that the thread's
// rseq area points to. Run from the cache, the IP is elsewhere and the sequence would silently lose
// its atomicity. A window therefore ends before the instruction that announces a sequence: the
// store to rseq_cs, which lies 8 bytes into the thread's rseq area, either as %fs:offset+8 or, as
// librseq writes it, as %fs:8(reg). Reference: rseq(2), glibc's __rseq_offset.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa/insn.h"

extern "C" {
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));
}

namespace auxtrail::unit {

// Notes the restartable sequences of an ELF file whose executable segment with file offset `offset`
// is mapped at `start`: the descriptors in its section __rseq_cs. Needs the translator lock;
// async-signal-safe.
// False if there are more than can be remembered: such code must not be translated.
// `key` names the module for rseq_forget().
bool rseq_add_module(const char* path, uint64_t start, uint64_t offset, uint64_t key);
// The module `key` is no longer mapped in [start, end).
void rseq_forget(uint64_t start, uint64_t end, uint64_t key);

// The abort handler of the sequence that holds `pc`, 0 if it is in none.
uint64_t rseq_abort_of(uint64_t pc);

// The CPU the thread runs on, from its rseq area; negative if libc registered none.
inline int32_t rseq_cpu() {
  if (&__rseq_size == nullptr || __rseq_size == 0) return -1;
  int32_t cpu;
  asm volatile("movl %%fs:4(%1), %0" : "=r"(cpu) : "r"(__rseq_offset));
  return cpu;
}

inline bool rseq_touches(const isa::Insn& insn, const uint8_t* code) {
  if (insn.segment != 0x64 || insn.disp_size == 0) return false;
  const bool is_store = insn.map == 0 && (insn.opcode == 0x89 || insn.opcode == 0xc7);
  if (!is_store) return false;
  int32_t displacement;
  if (insn.disp_size == 1) {
    displacement = static_cast<int8_t>(code[insn.disp_offset]);
  } else {
    __builtin_memcpy(&displacement, code + insn.disp_offset, 4);
  }
  const uint8_t modrm = code[insn.modrm_offset];
  const bool absolute =
      modrm >> 6 == 0 && (modrm & 7) == 4 && (code[insn.modrm_offset + 1] & 7) == 5;
  if (!absolute) return displacement == 8;
  const ptrdiff_t area = &__rseq_offset != nullptr ? __rseq_offset : 0;
  return area != 0 && displacement == area + 8;
}

}  // namespace auxtrail::unit
