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

// In the order of libipt's pt_insn_class where it has one.
enum class InsnClass : uint8_t {
  kOther,         // falls through
  kCall,          // call rel
  kCallIndirect,  // call r/m (near)
  kReturn,        // ret (near)
  kJump,          // jmp rel
  kJumpIndirect,  // jmp r/m (near), jmpabs: both get a TIP
  kCondJump,      // jcc, loop*, jcxz
  kFarCall,    // call far, int n, int1, int3, into, syscall, sysenter, vmcall, vmlaunch, vmresume
  kFarReturn,  // retf, iret, sysret, sysexit, eretu, erets, uiret, rsm
  kFarJump,    // jmp far
  kPtwrite,
  kIndirect,  // may branch, its target comes with a TIP: xbegin's abort, xabort
};

// What more the flow decoder asks about an instruction.
enum InsnTrait : uint8_t {
  kChangesCr3 = 1,     // mov to cr3 (and what libipt's pt_insn_changes_cr3 includes)
  kChangesCpl = 2,     // as pt_insn_changes_cpl
  kBindsToPip = 4,     // as pt_insn_binds_to_pip
  kBindsToVmcs = 8,    // as pt_insn_binds_to_vmcs
  kIsVmentry = 16,     // vmlaunch, vmresume
  kIsJmpabs = 32,      // `relative` is the absolute target
};

struct Instruction {
  uint8_t length = 0;  // bytes, 1..15
  InsnClass cls = InsnClass::kOther;
  uint8_t traits = 0;    // InsnTrait bits
  int64_t relative = 0;  // kCall, kJump, kCondJump: the displacement; kIsJmpabs: the target

  // Whether the next instruction follows without a packet.
  [[nodiscard]] bool needs_packet() const {
    return cls != InsnClass::kOther && cls != InsnClass::kPtwrite && cls != InsnClass::kCall &&
           cls != InsnClass::kJump;
  }
};

// Decodes the instruction that `code` begins with; false if the bytes are no instruction, or are cut
// short. Never reads beyond size_bytes. Thread safe.
bool decode_instruction(const uint8_t* code, size_t size_bytes, ExecMode mode, Instruction& insn);

}  // namespace auxtrail::flow
