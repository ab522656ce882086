// SimulatedProgram: random but valid x86 code in 64-, 32- and 16-bit sections, of which it is known
// what every instruction is and where direct branches lead.
//
// Nothing executes it: a walk (simulated_walk.h) follows it and decides for itself where
// conditional and indirect branches lead. What an instruction is comes from the templates it is
// made of, not from a decoder. The bytes are also in a file of their own (in memory), for decoders
// read code from files. Reference: Intel SDM vol. 2 for the encodings.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "decode/branch.h"
#include "decode/testing/random.h"
#include "flow/event.h"
#include "image/code_map.h"

namespace auxtrail::decode::testing {

enum class SimOp : uint8_t {
  kOther,
  kConditional,
  kJump,
  kCall,
  kJumpIndirect,
  kCallIndirect,
  kReturn,
  kSyscall,  // syscall, sysenter, int n
  kFar,      // far call, jmp and ret, iret, sysret, vmlaunch ...
  kPtwrite,
  kMovToCr3,
  kVmptrld,
  kXbegin,
  kXend,
  kXabort,
  kMwait,
};

struct SimInsn {
  uint64_t ip = 0;
  uint8_t length = 0;
  SimOp op = SimOp::kOther;
  uint16_t section = 0;
  uint32_t target = 0;  // kConditional, kJump, kCall, kXbegin: index of the instruction it leads to

  [[nodiscard]] uint64_t next_ip() const { return ip + length; }
};

struct SimSection {
  uint64_t address = 0;
  flow::ExecMode mode = flow::ExecMode::k64;
  std::vector<uint8_t> bytes;
  uint32_t first = 0;  // its instructions: [first, end)
  uint32_t end = 0;
};

class SimulatedProgram {
 public:
  explicit SimulatedProgram(uint64_t seed);

  [[nodiscard]] const std::vector<SimInsn>& insns() const { return insns_; }
  [[nodiscard]] const std::vector<SimSection>& sections() const { return sections_; }
  [[nodiscard]] flow::ExecMode mode(uint32_t insn) const {
    return sections_[insns_[insn].section].mode;
  }
  // An instruction that near branches from `from` may lead to.
  [[nodiscard]] uint32_t random_near(uint32_t from, Random& random) const;
  [[nodiscard]] uint32_t random_insn(Random& random) const {
    return static_cast<uint32_t>(random.below(insns_.size()));
  }

  // All of the code, as decoders want it. Sections may be cut in two, in the middle of an
  // instruction.
  [[nodiscard]] const image::CodeMap& code() const { return code_; }
  // The same without one section: flows into it have no code.
  [[nodiscard]] const image::CodeMap& incomplete_code() const { return incomplete_code_; }

  // The bytes at `address`; nothing if no section holds it.
  [[nodiscard]] std::span<const uint8_t> bytes_at(uint64_t address) const;

 private:
  void add_section(uint64_t address, flow::ExecMode mode, Random& random);
  void link(Random& random);
  void write_file(Random& random, uint64_t id);

  std::vector<SimInsn> insns_;
  std::vector<uint8_t> displacement_bytes_;  // per instruction, while it is built
  std::vector<SimSection> sections_;
  UniqueFd file_;
  image::CodeMap code_;
  image::CodeMap incomplete_code_;
};

// The kind of branch that decoders must take `op` for; op is one.
BranchKind branch_kind(SimOp op);

}  // namespace auxtrail::decode::testing
