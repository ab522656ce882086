// What an instruction of the program under test is, told by Zydis: the tracer under test has a
// decoder of its own, and the truth must not share it.
#pragma once

#include <Zydis/Zydis.h>

#include <cstdint>
#include <string>
#include <unordered_map>

#include "tracee.h"

namespace auxtrail::lockstep {

struct Instruction {
  bool valid = false;
  uint8_t length = 0;
  bool conditional = false;  // jcc, loop, jcxz
  bool branch = false;       // any other that changes the flow: jmp, call, ret, far
  bool direct = false;       // of these, one whose target the decoder knows
  bool returns = false;
  bool system_call = false;
  bool repeats = false;  // a string instruction with rep: the CPU steps iteration by iteration
  bool pushes_flags = false;
  bool emulated = false;  // by a virtual machine's host: see Tracee::step_emulated
  bool varies = false;    // reads a clock or a random number: two processes never agree
  uint64_t target = 0;    // of direct branches
  ZydisMnemonic mnemonic = ZYDIS_MNEMONIC_INVALID;
  ZydisInstructionCategory category = ZYDIS_CATEGORY_INVALID;
};

// Whether the conditional branch is taken with these registers, by its definition in the SDM.
bool IsTaken(const Instruction& instruction, const Registers& registers);

// Executes one instruction of `tracee`, which stands at `ip`, as it would run without a debugger.
Stop StepOne(Tracee& tracee, const Instruction& instruction, uint64_t ip);

// "jnz (74 05)" and the like, for messages.
std::string Describe(const Tracee& tracee, uint64_t ip);

// Decoded instructions of one process, remembered until forget().
class InstructionTable {
 public:
  explicit InstructionTable(const Tracee& tracee);

  const Instruction& at(uint64_t ip);
  // The program's mappings changed: code may be another now.
  void forget() { known_.clear(); }

 private:
  [[nodiscard]] Instruction decode(uint64_t ip) const;

  const Tracee& tracee_;
  ZydisDecoder decoder_{};
  std::unordered_map<uint64_t, Instruction> known_;
};

}  // namespace auxtrail::lockstep
