// The legacy opcode maps (one byte, 0F, 0F38, 0F3A) of 64-bit mode as tables built at compile time.
//
// Every (map, opcode, mandatory prefix) names one `Form`: is there a ModRM byte, which immediate
// follows, and which ModRM values mean what (`Shape`). What is not listed is undefined; form 0 is
// the undefined one. Left out on purpose, hence undefined here: 3DNow!, MPX, VIA PadLock, Key
// Locker, undocumented x87 aliases, REX2/APX. Reference: Intel SDM vol. 2 appendix A, AMD APM vol.
// 3 appendix A.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "isa/insn.h"
#include "isa/table.h"

namespace auxtrail::isa {

// Sets of mandatory prefixes; the bit number is the `pp` value of VEX and the table's index.
enum PrefixSet : uint8_t { kNone = 1, k66 = 2, kF3 = 4, kF2 = 8, kNone66 = 3, kAnyPrefix = 15 };

enum class Imm : uint8_t {
  kNo,
  k8,
  kZ,      // 4 bytes, 2 with operand size 16
  kV,      // 8 bytes with REX.W, 2 with operand size 16, else 4
  kEnter,  // imm16, imm8
  k8k8,    // imm8, imm8 (extrq, insertq)
  kTest8,  // imm8 if ModRM.reg is 0 or 1
  kTestZ,  // kZ if ModRM.reg is 0 or 1
  kRel8,
  kRel32,
  k16,
  // From here on the decoder does more than to skip bytes.
  kReturn16,
  kInt8,     // 0x80 is a system call
  kMoffs,    // an address of 8 bytes, 4 with address size 32
  kControl,  // no immediate, but REX.R is refused (mov to and from control and debug registers)
  kCount,
};
constexpr Imm kFirstRareImm = Imm::kReturn16;

// The class of every ModRM value: eight memory forms by ModRM.reg, then 64 register forms by the
// low six bits.
struct Shape {
  Table<InsnClass, 72> cls{};
};

// The first shapes give every ModRM value the same class (and serve opcodes without ModRM): their
// number is that of the class.
enum ShapeId : uint8_t {
  kPlain = static_cast<uint8_t>(InsnClass::kOther),
  kTrapAny = static_cast<uint8_t>(InsnClass::kTrap),
  kSpecialAny = static_cast<uint8_t>(InsnClass::kSpecial),
  kUndefined = static_cast<uint8_t>(InsnClass::kInvalid),
  kMem,
  kReg,
  kSpecialMem,
  kMovFromSeg,
  kMovToSeg,
  kSlashZero,
  kSlashZeroTsx,
  kMovCr,
  kMovDr,
  kX87D9,
  kX87DA,
  kX87DB,
  kX87DC,
  kX87DD,
  kX87DE,
  kX87DF,
  kGroup4,
  kGroup5,
  kGroup6,
  kGroup7None,
  kGroup7F3,
  kGroup7F2,
  kGroup8,
  kGroup9None,
  kGroup9_66,
  kGroup9F3,
  kGroup9F2,
  kShiftW,
  kShiftQ,
  kShiftDq,
  kExtrq,
  kGroup15None,
  kGroup15_66,
  kGroup15F3,
  kGroup15F2,
  kHreset,
  kShapeCount,
};

struct Form {
  ShapeId shape = kUndefined;
  Imm imm = Imm::kNo;
  bool modrm = false;
  uint8_t lock_regs = 0;  // the ModRM.reg values (as bits) whose memory forms may be locked
};

namespace tables {

using enum InsnClass;

struct Rule {
  bool memory;
  uint8_t regs;  // bit set of ModRM.reg
  uint8_t rms;   // bit set of ModRM.rm, register forms only
  InsnClass cls;
};
constexpr Rule mem(unsigned regs, InsnClass cls = kOther) {
  return {true, static_cast<uint8_t>(regs), 0xFF, cls};
}
constexpr Rule reg(unsigned regs, InsnClass cls = kOther, unsigned rms = 0xFF) {
  return {false, static_cast<uint8_t>(regs), static_cast<uint8_t>(rms), cls};
}
// One register form, named by its ModRM byte.
constexpr Rule at(unsigned modrm, InsnClass cls = kOther) {
  return reg(1u << ((modrm >> 3) & 7), cls, 1u << (modrm & 7));
}

constexpr Shape shape(std::initializer_list<Rule> rules) {
  Shape s;
  s.cls.fill(kInvalid);
  for (const Rule& rule : rules) {
    for (unsigned r = 0; r < 8; ++r) {
      if (!((rule.regs >> r) & 1)) continue;
      if (rule.memory) s.cls[r] = rule.cls;
      for (unsigned m = 0; m < 8 && !rule.memory; ++m) {
        if ((rule.rms >> m) & 1) s.cls[8 + r * 8 + m] = rule.cls;
      }
    }
  }
  return s;
}

// In the order of ShapeId, after the uniform ones.
constexpr Shape kMixedShapes[] = {
    shape({mem(0xFF)}),                                 // kMem
    shape({reg(0xFF)}),                                 // kReg
    shape({mem(0xFF, kSpecial)}),                       // kSpecialMem
    shape({mem(0x3F), reg(0x3F)}),                      // kMovFromSeg
    shape({mem(0x3D, kSpecial), reg(0x3D, kSpecial)}),  // kMovToSeg: not cs
    shape({mem(0x01), reg(0x01)}),                      // kSlashZero: 8f
    shape({mem(0x01), reg(0x01), at(0xF8, kSpecial)}),  // kSlashZeroTsx: c6, c7
    shape({reg(0x1D, kSpecial)}),                       // kMovCr: 0, 2, 3, 4
    shape({reg(0xFF, kSpecial)}),                       // kMovDr
    shape({mem(0xFD), reg(0x03), at(0xD0), reg(0x10, kOther, 0x33), reg(0x20, kOther, 0x7F),
           reg(0xC0)}),                                 // kX87D9
    shape({mem(0xFF), reg(0x0F), at(0xE9)}),            // kX87DA
    shape({mem(0xAF), reg(0x6F), at(0xE2), at(0xE3)}),  // kX87DB
    shape({mem(0xFF), reg(0xF3)}),                      // kX87DC
    shape({mem(0xDF), reg(0x3D)}),                      // kX87DD
    shape({mem(0xFF), reg(0xF3), at(0xD9)}),            // kX87DE
    shape({mem(0xFF), reg(0x61), at(0xE0)}),            // kX87DF
    shape({mem(0x03), reg(0x03)}),                      // kGroup4: fe
    shape({mem(0x43), reg(0x43), mem(0x04, kCallIndirect), reg(0x04, kCallIndirect),
           mem(0x10, kJumpIndirect), reg(0x10, kJumpIndirect), mem(0x28, kFar)}),  // kGroup5: ff
    shape({mem(0x33), reg(0x33), mem(0x0C, kSpecial), reg(0x0C, kSpecial)}),       // kGroup6: 0f 00
    // kGroup7None: 0f 01. sgdt sidt smsw; lgdt lidt lmsw invlpg
    shape({mem(0x13),
           mem(0xCC, kSpecial),
           reg(0x10),
           reg(0x40, kSpecial),
           at(0xC0, kSpecial),
           at(0xC1, kFar),
           at(0xC2, kFar),
           at(0xC3, kFar),
           at(0xC4, kSpecial),
           at(0xC5, kSpecial),  // enclv vm* pconfig
           at(0xC8, kSpecial),
           at(0xC9, kSpecial),
           at(0xCA, kSpecial),
           at(0xCB, kSpecial),
           at(0xCF, kSpecial),  // monitor mwait clac stac encls
           at(0xD0),
           at(0xD1, kSpecial),
           at(0xD4, kSpecial),
           at(0xD5, kSpecial),
           at(0xD6, kSpecial),
           at(0xD7, kSpecial),  // xgetbv xsetbv vmfunc xend xtest enclu
           at(0xD8, kFar),
           at(0xD9, kFar),
           at(0xDE, kFar),             // vmrun vmmcall skinit
           reg(0x08, kSpecial, 0xBC),  // vmload vmsave stgi clgi invlpga
           at(0xE8),
           at(0xEE),
           at(0xEF, kSpecial),  // serialize rdpkru wrpkru
           at(0xF8, kSpecial),
           at(0xF9),
           at(0xFA),
           at(0xFB),
           at(0xFC),
           at(0xFD),
           at(0xFE, kSpecial),
           at(0xFF, kSpecial)}),  // swapgs rdtscp monitorx mwaitx clzero rdpru invlpgb tlbsync
    // kGroup7F3: rstorssp setssbsy saveprevssp uiret testui clui stui mcommit rmpadjust psmash
    shape({mem(0x20, kSpecial), at(0xE8, kSpecial), at(0xEA, kSpecial), at(0xEC, kFar),
           at(0xED, kSpecial), at(0xEE, kSpecial), at(0xEF, kSpecial), at(0xFA), at(0xFE, kSpecial),
           at(0xFF, kSpecial)}),
    shape({at(0xE8, kSpecial), at(0xE9, kSpecial),
           at(0xFF, kSpecial)}),    // kGroup7F2: x*ldtrk pvalidate
    shape({mem(0xF0), reg(0xF0)}),  // kGroup8: 0f ba
    // kGroup9None: 0f c7. cmpxchg8b xsavec, rdrand rdseed; xrstors xsaves vmptrld vmptrst
    shape({mem(0x12), mem(0xE8, kSpecial), reg(0xC0)}),
    shape({mem(0x02), mem(0x40, kSpecial), reg(0xC0)}),  // kGroup9_66: vmclear
    shape({mem(0x02), mem(0x40, kSpecial), reg(0x40, kSpecial),
           reg(0x80)}),  // kGroup9F3: vmxon senduipi rdpid
    shape({mem(0x02)}),  // kGroup9F2
    shape({reg(0x54)}),  // kShiftW: 0f 71, 0f 72
    shape({reg(0x44)}),  // kShiftQ: 0f 73, MMX
    shape({reg(0xCC)}),  // kShiftDq: 66 0f 73
    shape({reg(0x01)}),  // kExtrq
    // kGroup15None: 0f ae. fxsave ... clflush; lfence mfence sfence
    shape({mem(0xFF), reg(0xE0)}),
    shape({mem(0xC0), reg(0x40)}),  // kGroup15_66: clwb clflushopt tpause
    // kGroup15F3: ptwrite clrssbsy; rdfsbase rdgsbase, wrfsbase wrgsbase, ptwrite, incssp, umonitor
    shape({mem(0x10), mem(0x40, kSpecial), reg(0x03), reg(0x0C, kSpecial), reg(0x10),
           reg(0x20, kSpecial), reg(0x40)}),
    shape({reg(0x40)}),           // kGroup15F2: umwait
    shape({at(0xC0, kSpecial)}),  // kHreset
};

constexpr size_t kMixedShapeCount = sizeof(kMixedShapes) / sizeof(Shape);

constexpr Table<Shape, kShapeCount> make_shapes() {
  Table<Shape, kShapeCount> shapes{};
  for (unsigned i = 0; i <= kUndefined; ++i) shapes[i].cls.fill(static_cast<InsnClass>(i));
  static_assert(kMixedShapeCount == kShapeCount - kUndefined - 1);
  for (unsigned i = 0; i < kMixedShapeCount; ++i) shapes[kUndefined + 1 + i] = kMixedShapes[i];
  return shapes;
}
inline constexpr Table<Shape, kShapeCount> kShapes = make_shapes();

// The form of `opcode` in `map` under mandatory prefix `pp` is forms[map][opcode * 4 + pp].
struct Builder {
  // Defines opcodes first..last of `map` under the given prefixes.
  constexpr void add(unsigned map, unsigned first, unsigned last, unsigned prefixes, Form form) {
    for (unsigned op = first; op <= last; ++op) {
      for (unsigned pp = 0; pp < 4; ++pp) {
        if ((prefixes >> pp) & 1) forms[map][op * 4 + pp] = form;
      }
    }
  }
  Table<Table<Form, 1024>, 4> forms{};
};

constexpr Form plain(InsnClass cls = kOther, Imm imm = Imm::kNo) {
  return {.shape = static_cast<ShapeId>(cls), .imm = imm};
}
constexpr Form modrm(ShapeId id = kPlain, Imm imm = Imm::kNo, unsigned lock_regs = 0) {
  return {.shape = id, .imm = imm, .modrm = true, .lock_regs = static_cast<uint8_t>(lock_regs)};
}

constexpr void add_one_byte_map(Builder& b) {
  const auto add = [&b](unsigned first, unsigned last, Form form) {
    b.add(0, first, last, kAnyPrefix, form);
  };
  for (unsigned row = 0x00; row < 0x40; row += 8) {  // add or adc sbb and sub xor cmp
    add(row, row + 1, modrm(kPlain, Imm::kNo, row == 0x38 ? 0 : 0xFF));
    add(row + 2, row + 3, modrm());
    add(row + 4, row + 4, plain(kOther, Imm::k8));
    add(row + 5, row + 5, plain(kOther, Imm::kZ));
  }
  add(0x50, 0x5F, plain());
  add(0x63, 0x63, modrm());
  add(0x68, 0x68, plain(kOther, Imm::kZ));
  add(0x69, 0x69, modrm(kPlain, Imm::kZ));
  add(0x6A, 0x6A, plain(kOther, Imm::k8));
  add(0x6B, 0x6B, modrm(kPlain, Imm::k8));
  add(0x6C, 0x6F, plain(kSpecial));
  add(0x70, 0x7F, plain(kCondJump, Imm::kRel8));
  add(0x80, 0x80, modrm(kPlain, Imm::k8, 0x7F));
  add(0x81, 0x81, modrm(kPlain, Imm::kZ, 0x7F));
  add(0x83, 0x83, modrm(kPlain, Imm::k8, 0x7F));
  add(0x84, 0x85, modrm());
  add(0x86, 0x87, modrm(kPlain, Imm::kNo, 0xFF));
  add(0x88, 0x8B, modrm());
  add(0x8C, 0x8C, modrm(kMovFromSeg));
  add(0x8D, 0x8D, modrm(kMem));
  add(0x8E, 0x8E, modrm(kMovToSeg));
  add(0x8F, 0x8F, modrm(kSlashZero));
  add(0x90, 0x99, plain());
  add(0x9B, 0x9C, plain());
  add(0x9D, 0x9D, plain(kSpecial));
  add(0x9E, 0x9F, plain());
  add(0xA0, 0xA3, plain(kOther, Imm::kMoffs));
  add(0xA4, 0xA7, plain());
  add(0xA8, 0xA8, plain(kOther, Imm::k8));
  add(0xA9, 0xA9, plain(kOther, Imm::kZ));
  add(0xAA, 0xAF, plain());
  add(0xB0, 0xB7, plain(kOther, Imm::k8));
  add(0xB8, 0xBF, plain(kOther, Imm::kV));
  add(0xC0, 0xC1, modrm(kPlain, Imm::k8));
  add(0xC2, 0xC2, plain(kReturn, Imm::kReturn16));
  add(0xC3, 0xC3, plain(kReturn));
  add(0xC6, 0xC6, modrm(kSlashZeroTsx, Imm::k8));
  add(0xC7, 0xC7, modrm(kSlashZeroTsx, Imm::kZ));
  add(0xC8, 0xC8, plain(kOther, Imm::kEnter));
  add(0xC9, 0xC9, plain());
  add(0xCA, 0xCA, plain(kFar, Imm::k16));
  add(0xCB, 0xCB, plain(kFar));
  add(0xCC, 0xCC, plain(kTrap));
  add(0xCD, 0xCD, plain(kFar, Imm::kInt8));
  add(0xCF, 0xCF, plain(kFar));
  add(0xD0, 0xD3, modrm());
  add(0xD7, 0xD7, plain());
  add(0xD8, 0xD8, modrm());
  add(0xD9, 0xD9, modrm(kX87D9));
  add(0xDA, 0xDA, modrm(kX87DA));
  add(0xDB, 0xDB, modrm(kX87DB));
  add(0xDC, 0xDC, modrm(kX87DC));
  add(0xDD, 0xDD, modrm(kX87DD));
  add(0xDE, 0xDE, modrm(kX87DE));
  add(0xDF, 0xDF, modrm(kX87DF));
  add(0xE0, 0xE3, plain(kLoop, Imm::kRel8));
  add(0xE4, 0xE7, plain(kSpecial, Imm::k8));
  add(0xE8, 0xE8, plain(kCall, Imm::kRel32));
  add(0xE9, 0xE9, plain(kJump, Imm::kRel32));
  add(0xEB, 0xEB, plain(kJump, Imm::kRel8));
  add(0xEC, 0xEF, plain(kSpecial));
  add(0xF1, 0xF1, plain(kTrap));
  add(0xF4, 0xF4, plain(kTrap));
  add(0xF5, 0xF5, plain());
  add(0xF6, 0xF6, modrm(kPlain, Imm::kTest8, 0x0C));
  add(0xF7, 0xF7, modrm(kPlain, Imm::kTestZ, 0x0C));
  add(0xF8, 0xF9, plain());
  add(0xFA, 0xFB, plain(kSpecial));
  add(0xFC, 0xFD, plain());
  add(0xFE, 0xFE, modrm(kGroup4, Imm::kNo, 0x03));
  add(0xFF, 0xFF, modrm(kGroup5, Imm::kNo, 0x03));
}

constexpr void add0FSystem(Builder& b) {
  const auto add = [&b](unsigned op, unsigned prefixes, Form form) {
    b.add(1, op, op, prefixes, form);
  };
  add(0x00, kNone66, modrm(kGroup6));
  add(0x01, kNone, modrm(kGroup7None));
  add(0x01, kF3, modrm(kGroup7F3));
  add(0x01, kF2, modrm(kGroup7F2));
  add(0x05, kNone, plain(kSyscall));
  add(0x06, kNone, plain(kSpecial));
  add(0x07, kNone, plain(kFar));
  add(0x08, kNone, plain(kSpecial));
  add(0x09, kNone | kF3, plain(kSpecial));
  add(0x0B, kAnyPrefix, plain(kTrap));
  b.add(1, 0x20, 0x20, kNone, modrm(kMovCr, Imm::kControl));
  b.add(1, 0x22, 0x22, kNone, modrm(kMovCr, Imm::kControl));
  b.add(1, 0x21, 0x21, kNone, modrm(kMovDr, Imm::kControl));
  b.add(1, 0x23, 0x23, kNone, modrm(kMovDr, Imm::kControl));
  add(0x30, kNone, plain(kSpecial));
  add(0x31, kNone, plain());
  add(0x32, kNone, plain(kSpecial));
  add(0x33, kNone, plain());
  add(0x34, kNone, plain(kSyscall));
  add(0x35, kNone, plain(kFar));
  add(0x37, kNone, plain(kSpecial));
  add(0x78, kNone, modrm(kSpecialAny));
  add(0x79, kNone, modrm(kSpecialAny));
  add(0xA0, kNone66, plain());
  add(0xA1, kNone66, plain(kSpecial));
  add(0xA2, kNone, plain());
  add(0xA8, kNone66, plain());
  add(0xA9, kNone66, plain(kSpecial));
  add(0xAA, kNone, plain(kSpecial));
  add(0xAE, kNone, modrm(kGroup15None));
  add(0xAE, k66, modrm(kGroup15_66));
  add(0xAE, kF3, modrm(kGroup15F3));
  add(0xAE, kF2, modrm(kGroup15F2));
  add(0xC7, kNone, modrm(kGroup9None, Imm::kNo, 0x02));
  add(0xC7, k66, modrm(kGroup9_66, Imm::kNo, 0x02));
  add(0xC7, kF3, modrm(kGroup9F3, Imm::kNo, 0x02));
  add(0xC7, kF2, modrm(kGroup9F2, Imm::kNo, 0x02));
}

constexpr void add0FInteger(Builder& b) {
  const auto add = [&b](unsigned first, unsigned last, Form form) {
    b.add(1, first, last, kAnyPrefix, form);
  };
  const Form locked = modrm(kPlain, Imm::kNo, 0xFF);
  b.add(1, 0x02, 0x03, kNone66, modrm());
  b.add(1, 0x0D, 0x0D, kNone66, modrm());
  add(0x18, 0x19, modrm());
  add(0x1C, 0x1F, modrm());
  add(0x40, 0x4F, modrm());
  add(0x80, 0x8F, plain(kCondJump, Imm::kRel32));
  add(0x90, 0x9F, modrm());
  add(0xA3, 0xA3, modrm());
  add(0xA4, 0xA4, modrm(kPlain, Imm::k8));
  add(0xA5, 0xA5, modrm());
  add(0xAB, 0xAB, locked);
  add(0xAC, 0xAC, modrm(kPlain, Imm::k8));
  add(0xAD, 0xAD, modrm());
  add(0xAF, 0xAF, modrm());
  add(0xB0, 0xB1, locked);
  add(0xB2, 0xB2, modrm(kSpecialMem));
  add(0xB3, 0xB3, locked);
  add(0xB4, 0xB5, modrm(kSpecialMem));
  add(0xB6, 0xB7, modrm());
  b.add(1, 0xB8, 0xB8, kF3, modrm());
  add(0xB9, 0xB9, modrm(kTrapAny));
  add(0xBA, 0xBA, modrm(kGroup8, Imm::k8, 0xE0));
  add(0xBB, 0xBB, locked);
  add(0xBC, 0xBF, modrm());
  add(0xC0, 0xC1, locked);
  b.add(1, 0xC3, 0xC3, kNone, modrm(kMem));
  add(0xC8, 0xCF, plain());
  add(0xFF, 0xFF, modrm(kTrapAny));
}

constexpr void add0FVector(Builder& b) {
  const auto add = [&b](unsigned first, unsigned last, unsigned prefixes, Form form = modrm()) {
    b.add(1, first, last, prefixes, form);
  };
  add(0x10, 0x11, kAnyPrefix);
  add(0x12, 0x12, kNone | kF3 | kF2);
  add(0x12, 0x12, k66, modrm(kMem));
  add(0x13, 0x13, kNone66, modrm(kMem));
  add(0x14, 0x15, kNone66);
  add(0x16, 0x16, kNone | kF3);
  add(0x16, 0x16, k66, modrm(kMem));
  add(0x17, 0x17, kNone66, modrm(kMem));
  add(0x28, 0x29, kNone66);
  add(0x2A, 0x2A, kAnyPrefix);
  add(0x2B, 0x2B, kNone66, modrm(kMem));
  add(0x2C, 0x2D, kAnyPrefix);
  add(0x2E, 0x2F, kNone66);
  add(0x50, 0x50, kNone66, modrm(kReg));
  add(0x51, 0x51, kAnyPrefix);
  add(0x52, 0x53, kNone | kF3);
  add(0x54, 0x57, kNone66);
  add(0x58, 0x5A, kAnyPrefix);
  add(0x5B, 0x5B, kNone66 | kF3);
  add(0x5C, 0x5F, kAnyPrefix);
  add(0x60, 0x6B, kNone66);
  add(0x6C, 0x6D, k66);
  add(0x6E, 0x6E, kNone66);
  add(0x6F, 0x6F, kNone66 | kF3);
  add(0x70, 0x70, kAnyPrefix, modrm(kPlain, Imm::k8));
  add(0x71, 0x72, kNone66, modrm(kShiftW, Imm::k8));
  add(0x73, 0x73, kNone, modrm(kShiftQ, Imm::k8));
  add(0x73, 0x73, k66, modrm(kShiftDq, Imm::k8));
  add(0x74, 0x76, kNone66);
  add(0x77, 0x77, kNone, plain());
  add(0x78, 0x78, k66, modrm(kExtrq, Imm::k8k8));
  add(0x78, 0x78, kF2, modrm(kReg, Imm::k8k8));
  add(0x79, 0x79, k66 | kF2, modrm(kReg));
  add(0x7C, 0x7D, k66 | kF2);
  add(0x7E, 0x7F, kNone66 | kF3);
  add(0xC2, 0xC2, kAnyPrefix, modrm(kPlain, Imm::k8));
  add(0xC4, 0xC4, kNone66, modrm(kPlain, Imm::k8));
  add(0xC5, 0xC5, kNone66, modrm(kReg, Imm::k8));
  add(0xC6, 0xC6, kNone66, modrm(kPlain, Imm::k8));
  add(0xD0, 0xD0, k66 | kF2);
  add(0xD1, 0xD5, kNone66);
  add(0xD6, 0xD6, k66);
  add(0xD6, 0xD6, kF3 | kF2, modrm(kReg));
  add(0xD7, 0xD7, kNone66, modrm(kReg));
  add(0xD8, 0xE5, kNone66);
  add(0xE6, 0xE6, k66 | kF3 | kF2);
  add(0xE7, 0xE7, kNone66, modrm(kMem));
  add(0xE8, 0xEF, kNone66);
  add(0xF0, 0xF0, kF2, modrm(kMem));
  add(0xF1, 0xF6, kNone66);
  add(0xF7, 0xF7, kNone66, modrm(kReg));
  add(0xF8, 0xFE, kNone66);
}

constexpr void add0F38(Builder& b) {
  const auto add = [&b](unsigned first, unsigned last, unsigned prefixes, Form form = modrm()) {
    b.add(2, first, last, prefixes, form);
  };
  add(0x00, 0x0B, kNone66);
  add(0x10, 0x10, k66);
  add(0x14, 0x15, k66);
  add(0x17, 0x17, k66);
  add(0x1C, 0x1E, kNone66);
  add(0x20, 0x25, k66);
  add(0x28, 0x29, k66);
  add(0x2A, 0x2A, k66, modrm(kMem));
  add(0x2B, 0x2B, k66);
  add(0x30, 0x35, k66);
  add(0x37, 0x41, k66);
  add(0x80, 0x82, k66, modrm(kSpecialMem));
  add(0xC8, 0xCD, kNone);
  add(0xCF, 0xCF, k66);
  add(0xDB, 0xDF, k66);
  add(0xF0, 0xF1, kNone66, modrm(kMem));
  add(0xF0, 0xF1, kF2);
  add(0xF5, 0xF5, k66, modrm(kSpecialMem));
  add(0xF6, 0xF6, kNone, modrm(kSpecialMem));
  add(0xF6, 0xF6, k66 | kF3);
  add(0xF8, 0xF8, k66 | kF2, modrm(kMem));
  add(0xF8, 0xF8, kF3, modrm(kSpecialMem));
  add(0xF9, 0xF9, kNone, modrm(kMem));
}

constexpr void add0F3A(Builder& b) {
  const auto add = [&b](unsigned first, unsigned last, unsigned prefixes,
                        Form form = modrm(kPlain, Imm::k8)) {
    b.add(3, first, last, prefixes, form);
  };
  add(0x08, 0x0E, k66);
  add(0x0F, 0x0F, kNone66);
  add(0x14, 0x17, k66);
  add(0x20, 0x22, k66);
  add(0x40, 0x42, k66);
  add(0x44, 0x44, k66);
  add(0x60, 0x63, k66);
  add(0xCC, 0xCC, kNone);
  add(0xCE, 0xCF, k66);
  add(0xDF, 0xDF, k66);
  add(0xF0, 0xF0, kF3, modrm(kHreset, Imm::k8));
}

constexpr Builder build() {
  Builder b;
  add_one_byte_map(b);
  add0FSystem(b);
  add0FInteger(b);
  add0FVector(b);
  add0F38(b);
  add0F3A(b);
  return b;
}

inline constexpr auto kLegacyForms = build().forms;

}  // namespace tables
}  // namespace auxtrail::isa
