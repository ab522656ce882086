// Zydis as the oracle of the decoder, for tests, the fuzzer and the benchmark only.
//
// The class of an instruction is told from Zydis' mnemonic and its own facts about it (branch type,
// privilege), never from opcode bytes, so that it shares nothing with the tables under test.
#pragma once

#include <Zydis/Zydis.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "isa/insn.h"

namespace auxtrail::isa {

class ZydisOracle {
 public:
  ZydisOracle() { ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64); }

  // The raw instruction, or nothing when Zydis refuses it.
  [[nodiscard]] std::optional<ZydisDecodedInstruction> raw(const uint8_t* code, size_t size) const;

  // What `decode` must say if it accepts the bytes; nothing when Zydis refuses them.
  [[nodiscard]] std::optional<Insn> decode(const uint8_t* code, size_t size) const;

  // Compares; returns the empty string when `got` agrees with Zydis or is kInvalid, else what
  // differs.
  [[nodiscard]] std::string difference(const Insn& got, const uint8_t* code, size_t size) const;

 private:
  ZydisDecoder decoder_{};
};

// The class of a decoded instruction after the contract in insn.h.
InsnClass class_of(const ZydisDecodedInstruction& insn);

// Instructions this decoder refuses on purpose, see opcode_tables.h: not a gap when met in real
// code.
bool is_left_out(const ZydisDecodedInstruction& insn);

std::string hex(const uint8_t* code, size_t size);

}  // namespace auxtrail::isa
