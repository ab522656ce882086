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
constexpr uint32_t path_count(Path path) {
  return static_cast<uint32_t>(31 - __builtin_clz(path));
}
constexpr uint32_t path_outcomes(Path path) { return path ^ 1u << path_count(path); }

// Calls of one superblock that are on their way at once.
inline constexpr uint32_t kMaxPendingCalls = 3;

struct Passage {
  enum Kind : uint8_t {
    kDirect,
    kIndirect,  // a jump or call; or a return, if returns are not compressed
    kReturn,    // from a call of another superblock
    kMiss,      // a return from a call of this superblock that leads elsewhere
  };
  uint32_t outcomes;
  uint8_t outcome_count;
  Kind kind;
  uint8_t calls;  // that have not returned in this superblock, the outermost first
  bool is_side_exit;  // of a conditional that could have been followed this way
  uint64_t returns_to[kMaxPendingCalls];
  uint16_t insns;     // of the program, from the superblock's first up to here
  uint16_t branches;  // among them, of every kind
  // How often it was taken; threads that count at once may lose some.
  uint32_t hits;
};
static_assert(sizeof(Passage) == 40);

}  // namespace auxtrail::unit
