// One instruction as trace decoding needs it: its length, and whether and how it leads elsewhere.
//
// Every mode (16, 32 and 64 bit), and every byte sequence: unlike isa/, which refuses whatever it
// does not know for certain, this decoder gives a length wherever the encoding has one, because
// the code of a trace did run. Reference: Intel SDM vol. 2, chapter 2 and appendix A; APX (REX2,
// EVEX extensions, JMPABS) as in the APX architecture specification.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flow/event.h"

namespace auxtrail::flow {

// In the order of libipt's pt_insn_class where it has one, and with libipt's opinion on what
// belongs where.
enum class InsnClass : uint8_t {
  kOther,         // falls through; also xbegin and xabort: where they lead, an event tells
  kCall,          // call rel
  kCallIndirect,  // call r/m (near)
  kReturn,        // ret (near)
  kJump,          // jmp rel
  kJumpIndirect,  // jmp r/m (near), jmpabs: both get a TIP
  kCondJump,      // jcc, loop*, jcxz
  kFarCall,       // call far, int n, int1, int3, into, syscall, sysenter, vmcall
  kFarReturn,     // retf, iret, sysret, sysexit, eretu, erets, uiret, vmlaunch, vmresume
  kFarJump,       // jmp far
  kPtwrite,
};

// What more the flow decoder asks about an instruction.
enum InsnTrait : uint16_t {
  kChangesCr3 = 1,   // mov to cr3
  kChangesCpl = 2,   // int*, iret, syscall, sysret, sysenter, sysexit
  kBindsToPip = 4,   // far branches, mov to cr3
  kBindsToVmcs = 8,  // far branches, vmptrld (and all of 0f c7 /6 in memory, as in libipt)
  kIsVmentry = 16,   // vmlaunch, vmresume
  kIsJmpabs = 32,    // `relative` is the absolute target
  kIsIret = 64,      // iret, sysret, sysexit, erets, eretu: what a CFE of type iret binds to
  kIsUiret = 128,
  kIsSyscall = 256,  // int n, syscall, sysenter
};

struct Instruction {
  uint8_t length = 0;  // bytes, 1..15
  InsnClass cls = InsnClass::kOther;
  uint16_t traits = 0;   // InsnTrait bits
  int64_t relative = 0;  // kCall, kJump, kCondJump: the displacement; kIsJmpabs: the target

  // Whether only a packet tells what comes next.
  [[nodiscard]] bool needs_packet() const {
    return cls != InsnClass::kOther && cls != InsnClass::kPtwrite && cls != InsnClass::kCall &&
           cls != InsnClass::kJump;
  }
};

// Decodes the instruction that `code` begins with; false (and `insn` undefined) if the bytes are no
// instruction, or are cut short, or the mode is unknown. Never reads beyond size_bytes. Thread
// safe.
bool decode_instruction(const uint8_t* code, size_t size_bytes, ExecMode mode, Instruction& insn);

}  // namespace auxtrail::flow
