// Translator: one superblock of the program's code into code that does the same and logs its
// branches.
//
// A superblock follows direct jumps and calls; conditionals in the direction that is likely: as
// they went so far (branch_bias.h), else backward if they lead there, else straight on (loop and
// jrcxz always so); returns from its own calls; and indirect branches to where they usually lead.
//
// Rules (docs/design/software-trace-unit.md tells why):
//  - every instruction boundary of the program stays an instruction boundary here, with its
//    registers, flags and memory; only rcx and rax are borrowed, within one branch, and kept in
//    TLS meanwhile;
//  - flags are never touched: only mov, lea, movzx, jrcxz, push/pop forms are added;
//  - return addresses pushed are the program's own;
//  - every way out of a superblock logs (so each cycle is counted and the log is unambiguous);
//    exit_code.h has the form of the direct ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isa/insn.h"
#include "unit/address_filters.h"
#include "unit/code_cache.h"
#include "unit/tls_offsets.h"

namespace auxtrail::unit {

class Translator {
 public:
  // How far a superblock may go.
  struct Reach {
    uint32_t insns;
    uint32_t outcomes;
  };
  static constexpr Reach kWindow = {48, kWindowPathBits};
  static constexpr Reach kContinuous = {96, kMaxPathBits};
  static constexpr Reach kHot = {256, 40};  // made anew (hot_code.cc)
  static constexpr uint32_t kMaxInsns = kHot.insns;
  static_assert(kMaxInsns < 1 << 9);  // InsnMark::branches
  static constexpr size_t kMaxCodeBytes = 16384;
  static constexpr uint64_t kHashSeed = 0xcbf29ce484222325;

  // Adds one instruction of at most 15 bytes to a hash.
  static uint64_t hash_insn(uint64_t hash, const uint8_t* bytes, size_t count) {
    if (count > 8) {
      hash = hash_word(hash, load(bytes, 8));
      bytes += 8;
      count -= 8;
    }
    return hash_word(hash, load(bytes, count));
  }

  // Room for the exits of a superblock, numbered from `first` on.
  static constexpr uint32_t kMaxExits = kHot.outcomes + kMaxVias + 1;
  struct ExitRoom {
    Exit* exits;
    Passage* passages;
    PassageDetails* details;
    uint32_t first;
    Via* vias;
    uint32_t first_via;
  };
  Translator(CodeCache& cache, const Segment& segment, CodeCache::Arena& arena, InsnMark* marks,
             ExitRoom room);

  struct Options {
    // For continuous trace: longer superblocks, which may be made anew (hot_code.cc); one that
    // begins with a system call is nothing but the way out before it; the log is packed.
    bool continuous = false;
    // Returns to where a decoder expects them become outcomes: in a window those from calls of the
    // same superblock, in continuous trace all.
    bool compress_returns = false;
    Reach reach = kWindow;
    // Filtered trace: a superblock is traced as a whole or not at all, and its ways out tell how
    // they leave it.
    AddressRange same_filter{0, ~uint64_t{0}};  // the addresses that are filtered as its first
    bool filtered = false;
  };
  // Fills `block` (all but first_mark). False if not even the first instruction can be translated.
  bool translate(uint64_t pc, Block* block, const Options& options);
  [[nodiscard]] channel::Reason refusal() const { return refusal_; }
  [[nodiscard]] uint32_t exit_count() const { return exit_count_; }
  [[nodiscard]] uint32_t via_count() const { return via_count_; }

 private:
  enum class Step : uint8_t { kContinue, kEnded };
  static uint64_t hash_word(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    return hash ^ hash >> 32;
  }
  // 1 to 8 bytes as a number. Reads eight where they lie in one page: they are mapped then.
  static uint64_t load(const uint8_t* bytes, size_t count) {
    uint64_t value = 0;
    if (reinterpret_cast<uintptr_t>(bytes) % channel::kPageBytes <= channel::kPageBytes - 8) {
      __builtin_memcpy(&value, bytes, sizeof value);
      return value & ~uint64_t{0} >> (64 - 8 * count);
    }
    for (size_t i = 0; i < count; ++i) value |= uint64_t{bytes[i]} << (8 * i);
    return value;
  }

  Step step(const isa::Insn& insn);
  Step refuse(channel::Reason reason);
  void mark(const isa::Insn& insn, bool spilled);
  void unmark();
  bool copy(const isa::Insn& insn);
  bool fix_displacement(const isa::Insn& insn, uint8_t* copied, size_t disp_offset, size_t length);
  void conditional(const isa::Insn& insn);
  void loop(const isa::Insn& insn);
  [[nodiscard]] bool is_within(uint64_t pc) const { return bounds_.contains(pc); }
  Step follow(uint64_t target);
  void push_return_address(uint64_t address);
  void expect_return(uint64_t address);
  bool too_many_calls();
  Step call(const isa::Insn& insn);
  bool load_target(const isa::Insn& insn);
  Step indirect(const isa::Insn& insn);
  Step paired_return(const isa::Insn& insn);
  [[nodiscard]] BranchBias::Place place(uint32_t insns) const;
  [[nodiscard]] bool is_likely(uint64_t target) const;
  Step follow_indirect(const isa::Insn& insn, uint64_t target, uint32_t number);
  static void make_packets(const Via& before, Via* via);
  void check_target(uint64_t expected);
  void move_stack(uint32_t bytes);
  enum class Saved : uint8_t { kRax, kRaxAndRcx };
  void log_indirect(uint32_t number, Saved saved);
  uint32_t new_passage(Path path, Passage::Kind kind,
                       PassageDetails::By by = PassageDetails::kSequence);
  void side_exit(uint64_t target, bool taken, uint8_t* field);
  void leave(uint64_t target, Exit::State state, channel::Reason reason,
             PassageDetails::By by = PassageDetails::kSequence);
  void finish();

  CodeCache& cache_;
  const Segment& segment_;
  CodeCache::Arena& arena_;
  InsnMark* marks_;
  TlsOffsets tls_;
  Emitter emit_;
  uint8_t* start_ = nullptr;
  uint64_t pc_ = 0;
  uint64_t first_pc_ = 0;
  uint64_t hash_ = kHashSeed;
  uint64_t hash_before_mark_ = kHashSeed;
  uint32_t insns_ = 0;
  uint32_t branches_ = 0;  // of these
  Options options_;
  AddressRange bounds_;  // what the superblock may hold: of the segment, filtered as its first
  Path path_ = kEmptyPath;
  ExitRoom room_;
  uint32_t exit_count_ = 0;
  uint32_t outcome_count_ = 0;
  uint32_t via_count_ = 0;
  struct Constant {
    uint8_t* field;
    uint64_t value;
  };
  static constexpr uint32_t kMaxConstants = 64;
  Constant constants_[kMaxConstants];
  uint32_t constant_count_ = 0;
  // Where the calls of this superblock that are on their way return to, the innermost last.
  uint64_t returns_[kMaxPendingCalls];
  uint32_t return_count_ = 0;
  struct Miss {  // of a paired return that goes elsewhere
    uint8_t* field;
    uint32_t number;
    uint32_t popped;  // from the stack, still to be done
  };
  Miss misses_[kHot.outcomes + kMaxVias];
  uint32_t miss_count_ = 0;
  channel::Reason refusal_ = channel::Reason::kUntranslatable;
};

}  // namespace auxtrail::unit
