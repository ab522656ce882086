// Instructions with a VEX, EVEX or XOP prefix. Internal to the decoder.
#pragma once

#include <cstdint>

#include "isa/insn.h"
#include "isa/instruction_parts.h"

namespace auxtrail::isa {

// Decodes from the first byte of the vector prefix (0xc4, 0xc5, 0x62 or 0x8f) at `code`, `offset`
// bytes into the instruction. Reads up to 8 bytes, whether or not they belong to it. False if
// invalid; `insn` is then partly filled.
bool decode_vector(const uint8_t* code, unsigned offset, const Prefixes& prefixes, Insn& insn);

}  // namespace auxtrail::isa
