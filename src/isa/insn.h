// What the rest of auxtrail needs to know of one x86-64 instruction: its length, what kind of
// branch it is, and where its RIP-relative displacement sits. Safe in the traced program: no
// allocation, no libc.
//
// The decoder is conservative: whatever it does not know for certain is kInvalid, never a guess. A
// wrong length would make the software trace unit execute something the program did not contain.
// Reference: Intel SDM vol. 2, chapter 2 and appendix A.
#pragma once

#include <cstddef>
#include <cstdint>

namespace auxtrail::isa {

enum class InsnClass : uint8_t {
  kOther,         // falls through to the next instruction, may be executed from any address (mind
                  // rip_relative)
  kCondJump,      // jcc rel8/rel32: one TNT bit
  kLoop,          // loop, loope, loopne, jcxz/jecxz/jrcxz: conditional too, rel8 only
  kJump,          // jmp rel8/rel32
  kCall,          // call rel32
  kJumpIndirect,  // jmp r/m64 (near)
  kCallIndirect,  // call r/m64 (near)
  kReturn,        // ret, ret imm16 (near)
  kFar,      // far jmp/call/ret, iret, int n, into, syscall's kin other than kSyscall, vmlaunch ...
  kSyscall,  // syscall, sysenter, int 0x80
  kTrap,     // int3, int1, ud0/ud1/ud2, hlt: traps at this address
  kSpecial,  // falls through, but must run at its own address or outside a window:
             // xbegin/xend/xabort/xtest, popf, wrfsbase/wrgsbase, wrpkru, xrstor with PKRU is not
             // told apart, mov/pop to ss, in/out, privileged instructions, rsm, clts, SGX, VMX, CET
             // (incssp, rstorssp ...), uintr, senduipi
  kInvalid,  // unknown, undefined or cut short
};

struct Insn {
  uint8_t length = 0;  // bytes, 1..15; 0 when kInvalid
  InsnClass cls = InsnClass::kInvalid;
  uint8_t opcode = 0;  // last opcode byte (e.g. 0x74 for je rel8, 0x84 for 0f 84)
  uint8_t map = 0;     // 0: one byte, 1: 0f, 2: 0f38, 3: 0f3a, 5, 6 (EVEX), 8..10 (XOP) as encoded
  uint8_t modrm_offset = 0;  // from the instruction's start, 0 if none
  uint8_t disp_offset = 0;   // of the displacement, 0 if none
  uint8_t disp_size = 0;     // 0, 1, 4 (8 for moffs)
  uint8_t imm_offset = 0;    // of the immediate or relative target, 0 if none
  uint8_t imm_size = 0;
  uint8_t rex = 0;      // the REX byte, 0 if none
  uint8_t segment = 0;  // segment override prefix 0x64/0x65 in force, else 0
  bool rip_relative = false;
  bool operand_size_16 =
      false;  // 0x66 in legacy code, not overridden by REX.W (mandatory prefix of SSE too)
  bool address_size_32 = false;  // 0x67 in force; with rip_relative the address is EIP-relative
  int64_t relative = 0;          // branch displacement of the rel8/rel32 classes, sign extended
  uint16_t return_pop = 0;       // ret imm16

  [[nodiscard]] uint64_t target(uint64_t ip) const {
    return ip + length + static_cast<uint64_t>(relative);
  }
};

// Decodes the 64-bit mode instruction at `code`, of which `size_bytes` bytes may be read. Never
// reads further. Async-signal-safe, no allocation. Near branches with a 0x66 prefix are kInvalid
// (Intel and AMD differ).
Insn decode(const uint8_t* code, size_t size_bytes);

}  // namespace auxtrail::isa
