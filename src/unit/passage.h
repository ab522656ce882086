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
inline constexpr uint32_t kMaxPathBits = 16;  // outcomes of one superblock
constexpr uint32_t path_count(Path path) { return static_cast<uint32_t>(31 - __builtin_clz(path)); }
constexpr uint32_t path_outcomes(Path path) { return path ^ 1u << path_count(path); }

// Calls of one superblock that are on their way at once.
inline constexpr uint32_t kMaxPendingCalls = 3;

// An indirect branch in the middle of a superblock that led where it usually does.
struct Via {
  uint64_t target;
  uint16_t outcomes;  // since the superblock's first instruction or the via before
  uint8_t outcome_count;
  bool is_return;
};
static_assert(sizeof(Via) == 16);
inline constexpr uint32_t kMaxVias = 4;  // of one superblock

// What happened from a superblock's first instruction up to one of its others.
struct Way {
  uint32_t first_via;
  uint32_t via_count;
  Path path;  // behind the last of these
};
inline constexpr Way kEmptyWay{0, 0, kEmptyPath};

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
  uint32_t insns;  // of the program, from the superblock's first up to here
};
static_assert(sizeof(PassageDetails) == 40);

}  // namespace auxtrail::unit
