// What a VEX, EVEX or XOP encoded opcode accepts, in a form that can be checked with a few bit
// tests.
//
// The memory and the register form (ModRM.mod 3) of an opcode often differ in what they accept, so
// each has a `VectorSide`. An encoding is defined when every field passes; an all-zero side defines
// nothing. Reference: Intel SDM vol. 2 section 2.3 (VEX), 2.7 (EVEX), the exception classes of
// sections 2.4 and 2.8.
#pragma once

#include <cstdint>

namespace auxtrail::isa {

// The index of an opcode space in the tables.
enum VectorSpace : uint8_t {
  kVex1,
  kVex2,
  kVex3,
  kEvex1,
  kEvex2,
  kEvex3,
  kEvex5,
  kEvex6,
  kXop8,
  kXop9,
  kXopA,
  kVectorSpaceCount,
  kNoSpace = kVectorSpaceCount,
};

// Prefix fields (with their stored inversion undone) that must be zero.
enum ZeroField : uint8_t {
  kFieldR = 1,    // bit 3 of the ModRM.reg operand
  kFieldR2 = 2,   // EVEX.R': bit 4 of it
  kFieldX = 4,    // register form: bit 4 of the ModRM.rm operand (EVEX)
  kFieldB = 8,    // register form: bit 3 of it
  kFieldV = 16,   // the lower three bits of vvvv
  kFieldV3 = 32,  // bit 3 of vvvv
  kFieldV2 = 64,  // EVEX.V': bit 4 of vvvv
};

enum MaskUse : uint8_t {
  kMaskNone = 1,     // EVEX.aaa 0 accepted
  kMaskSome = 2,     // EVEX.aaa 1..7 accepted
  kMaskZeroing = 4,  // EVEX.z accepted together with aaa 1..7
};

struct VectorSide {
  uint8_t wl = 0;    // bit W*4+L set: this W and vector length are accepted with EVEX.b 0
  uint8_t wl_b = 0;  // the same with EVEX.b 1 (broadcast, rounding)
  uint8_t regs = 0;  // accepted ModRM.reg values, as bits
  uint8_t zero = 0;  // ZeroField
  uint8_t mask = 0;  // MaskUse
  bool operator==(const VectorSide&) const = default;
};

struct VectorForm {
  VectorSide memory;
  VectorSide reg;
  bool modrm = true;
  bool vsib = false;  // the memory form needs a SIB byte with a vector index
  uint8_t imm_size = 0;
  bool operator==(const VectorForm&) const = default;
};

// One defined (space, opcode, pp) of the tables.
struct VectorRow {
  uint8_t space;
  uint8_t opcode;
  uint8_t pp;
  uint8_t form;
};

}  // namespace auxtrail::isa
