// Zydis as the oracle of the instruction decoder, in all three modes; for tests and the fuzzer.
//
// Class and traits come from Zydis' mnemonic, operands and branch type, never from opcode bytes, so
// that nothing is shared with the tables under test.
#pragma once

#include <Zydis/Zydis.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "flow/instruction.h"

namespace auxtrail::flow::test {

class ZydisInstructionOracle {
 public:
  explicit ZydisInstructionOracle(ExecMode mode);

  // Nothing where Zydis refuses the bytes, which it also does for what is undefined.
  [[nodiscard]] std::optional<Instruction> decode(std::span<const uint8_t> bytes) const;

  // Decodes with both. Empty if they agree, or Zydis finds nothing, or the difference is a known
  // one (see is_known_difference); else what differs. Accepted instructions are also cut short, and
  // decoded without a byte behind them.
  [[nodiscard]] std::string difference(std::span<const uint8_t> bytes) const;

 private:
  ExecMode mode_;
  ZydisDecoder decoder_{};
};

std::string hex(std::span<const uint8_t> bytes);
std::string text(const Instruction& insn);

// Both compared in full.
bool same(const Instruction& a, const Instruction& b);

}  // namespace auxtrail::flow::test
