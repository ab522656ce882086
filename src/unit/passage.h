// What the drain of the log (branch_log.h) has to know of each way out of a superblock.
//
// Translated code logs no more than the number of the exit it takes, and where that leads if only
// the run tells. All else is the same each time and stands here, filled once by the translator.
#pragma once

#include <cstdint>

namespace auxtrail::unit {

// What a superblock's conditionals and paired returns did on the way to one of its instructions: a
// leading 1 bit, then the outcomes, the oldest highest, taken = 1.
using Path = uint32_t;
inline constexpr Path kEmptyPath = 1;
inline constexpr uint32_t kMaxPathBits = 16;  // so many outcomes
constexpr uint32_t path_count(Path path) { return static_cast<uint32_t>(31 - __builtin_clz(path)); }
constexpr uint32_t path_outcomes(Path path) { return path ^ 1u << path_count(path); }

// Calls of one superblock that are on their way at once.
inline constexpr uint32_t kMaxPendingCalls = 3;

// An indirect branch in the middle of a superblock that led where it usually does.
struct Via {
  uint64_t target;
  // Behind another via that is a TIP, nothing of the packets is left to the run: these bytes.
  uint64_t packets;
  uint16_t outcomes;  // since the superblock's first instruction or the via before
  uint8_t outcome_count;
  bool is_return;        // may be compressed
  uint8_t packet_bytes;  // 0: what came before decides
};
static_assert(sizeof(Via) == 24);
inline constexpr uint32_t kMaxVias = 6;  // of one superblock

// What happened from a superblock's first instruction up to one of its others.
struct Block;
struct Way {
  uint32_t first_via;
  uint32_t via_count;
  Path path;           // behind the last of these
  const Block* block;  // the superblock; null: it was not entered
  uint32_t insns;      // of the program that were executed in it
};
inline constexpr Way kEmptyWay{0, 0, kEmptyPath, nullptr, 0};

// Of a way out, what is needed each time it is taken. Small, for a program has thousands that are
// in use at once.
struct Passage {
  enum Kind : uint8_t {
    kDirect,
    kIndirect,  // a jump or call; or a return, if returns are not compressed
    kReturn,    // from a call of another superblock
    kMiss,      // a return from a call of this superblock that leads elsewhere
  };
  uint16_t outcomes;  // of the way's path
  uint8_t outcome_count;
  Kind kind;
  uint8_t units;  // of the log that an entry takes
  uint8_t calls;  // that have not returned in this superblock
  uint8_t via_count;
  bool is_side_exit;  // of a conditional that could have been followed this way
  uint32_t first_via;
  uint32_t hits;  // how often it was taken; threads that count at once may lose some
};
static_assert(sizeof(Passage) == 16);

// And the rest; in windows nobody asks for it.
struct PassageDetails {
  uint64_t returns_to[kMaxPendingCalls];  // Passage::calls of them, the outermost first
  // Where an indirect one led last: the target, and above its 48 bits how often in a row.
  uint64_t seen;
  uint32_t insns;     // of the program, from the superblock's first up to here
  uint16_t branches;  // of these
  // What a direct one leaves the superblock with, for address filters: that may be where the trace
  // ends.
  enum By : uint8_t {
    kSequence,     // nothing: the next instruction comes, also behind a conditional not taken
    kBranch,       // a jump or call
    kConditional,  // the way's last outcome, taken
  } by;
};
static_assert(sizeof(PassageDetails) == 40);

// What is logged of a way out: its number and, of its passage, all that the drain needs each time.
// Few passages are looked at then, which would have to come into the CPU's cache.
class LogWord {
 public:
  constexpr explicit LogWord(uint64_t word) : word_(word) {}
  constexpr LogWord(uint32_t number, const Passage& passage)
      : word_(number |
              (uint64_t{passage.outcomes} | uint64_t{passage.outcome_count} << kCountAt |
               uint64_t{passage.units} << kUnitsAt | uint64_t{passage.calls} << kCallsAt |
               uint64_t{passage.kind} << kKindAt | uint64_t{passage.via_count != 0} << kViasAt)
                  << 32) {}

  [[nodiscard]] constexpr uint32_t number() const { return static_cast<uint32_t>(word_); }
  [[nodiscard]] constexpr uint32_t outcomes() const { return field(0, 16); }
  [[nodiscard]] constexpr uint32_t outcome_count() const { return field(kCountAt, 5); }
  [[nodiscard]] constexpr uint32_t units() const { return field(kUnitsAt, 5); }
  [[nodiscard]] constexpr uint32_t calls() const { return field(kCallsAt, 2); }
  [[nodiscard]] constexpr Passage::Kind kind() const {
    return static_cast<Passage::Kind>(field(kKindAt, 2));
  }
  [[nodiscard]] constexpr bool has_vias() const { return field(kViasAt, 1) != 0; }
  // Outcomes, and one unit of the log.
  [[nodiscard]] constexpr bool is_plain() const { return word_ >> (32 + kCallsAt) == 0; }

  // Its two halves, for translated code to write.
  [[nodiscard]] constexpr uint32_t low() const { return static_cast<uint32_t>(word_); }
  [[nodiscard]] constexpr uint32_t high() const { return static_cast<uint32_t>(word_ >> 32); }

 private:
  // In the upper half.
  static constexpr uint32_t kCountAt = 16;
  static constexpr uint32_t kUnitsAt = 21;
  static constexpr uint32_t kCallsAt = 26;
  static constexpr uint32_t kKindAt = 28;
  static constexpr uint32_t kViasAt = 30;
  static_assert(kMaxPathBits <= 16 && kMaxPendingCalls < 4);

  [[nodiscard]] constexpr uint32_t field(uint32_t at, uint32_t bits) const {
    return static_cast<uint32_t>(word_ >> (32 + at)) & ((1u << bits) - 1);
  }
  uint64_t word_;
};

}  // namespace auxtrail::unit
