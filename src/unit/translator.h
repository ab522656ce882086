// Translator: one superblock of the program's code into code that does the same and logs its
// branches.
//
// Rules (docs/design/software-trace-unit.md tells why):
//  - every instruction boundary of the program stays an instruction boundary here, with the
//  program's
//    registers, flags and memory; only rcx and rax are borrowed, within one branch, and kept in TLS
//    meanwhile;
//  - flags are never touched: only mov, lea, movzx, jrcxz, push/pop forms are added;
//  - return addresses pushed are the program's own;
//  - every way out of a superblock logs (so each cycle is counted and the log is unambiguous).
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa/insn.h"
#include "unit/code_cache.h"
#include "unit/tls_offsets.h"

namespace auxtrail::unit {

class Translator {
 public:
  static constexpr uint32_t kMaxInsns = 48;
  static constexpr size_t kMaxCodeBytes = 4096;
  static constexpr uint64_t kHashSeed = 0xcbf29ce484222325;

  static uint64_t hash_bytes(uint64_t hash, const uint8_t* bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
  }

  Translator(CodeCache& cache, const Segment& segment, CodeCache::Arena& arena, InsnMark* marks);

  // Fills `block` (all but first_mark). False if not even the first instruction can be translated.
  bool translate(uint64_t pc, Block* block);
  [[nodiscard]] channel::Reason refusal() const { return refusal_; }

 private:
  enum class Step : uint8_t { kContinue, kEnded };
  struct SideExit {
    uint8_t* field;  // rel32 that must reach the stub
    uint64_t target;
    uint8_t path;  // conditionals before the taken one
  };

  Step step(const isa::Insn& insn);
  Step refuse(channel::Reason reason);
  void mark(const isa::Insn& insn, bool spilled);
  void unmark();
  bool copy(const isa::Insn& insn);
  bool fix_displacement(const isa::Insn& insn, uint8_t* copied, size_t disp_offset, size_t length);
  void conditional(const isa::Insn& insn);
  void loop(const isa::Insn& insn);
  Step follow(uint64_t target);
  void push_return_address(uint64_t address);
  Step call(const isa::Insn& insn);
  bool load_target(const isa::Insn& insn);
  Step indirect(const isa::Insn& insn);
  void leave(uint64_t target, uint32_t path_entry, bool is_end, channel::Reason reason);
  void finish();

  CodeCache& cache_;
  const Segment& segment_;
  CodeCache::Arena& arena_;
  InsnMark* marks_;
  TlsOffsets tls_;
  Emitter emit_;
  uint8_t* start_ = nullptr;
  uint64_t pc_ = 0;
  uint64_t hash_ = kHashSeed;
  uint64_t hash_before_mark_ = kHashSeed;
  uint32_t insns_ = 0;
  uint32_t path_ = 0;
  SideExit side_exits_[kMaxPathBits];
  uint32_t side_exit_count_ = 0;
  struct Constant {
    uint8_t* field;
    uint64_t value;
  };
  Constant constants_[kMaxInsns];
  uint32_t constant_count_ = 0;
  channel::Reason refusal_ = channel::Reason::kUntranslatable;
};

}  // namespace auxtrail::unit
