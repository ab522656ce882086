// SuperblockWalk: a way through a superblock, instruction by instruction.
//
// What the packets of a whole way are stands in Passage and Way. Where a trace is to end and begin
// again in the middle, each instruction's part is needed: a decoder that starts there does not know
// the calls before, so a return that was an outcome is a TIP then. Slow; for samples that are due
// somewhere on the way. Signal safe.
#pragma once

#include <cstdint>

#include "pt/packet_writer.h"
#include "unit/code_cache.h"
#include "unit/passage.h"
#include "unit/return_stack.h"

namespace auxtrail::unit {

class SuperblockWalk {
 public:
  // The whole way to an exit; if it is indirect, to `target`.
  static SuperblockWalk to_exit(uint32_t number, uint64_t target);
  // The way to one of its instructions; not an empty one.
  static SuperblockWalk on(const Way& way);

  // Instructions on the way, the last one included.
  [[nodiscard]] uint32_t insns() const { return insns_; }
  // How many of the first `insns` are branches.
  [[nodiscard]] uint32_t branches(uint32_t insns) const;
  // The program's position behind the first `insns`, one or more.
  [[nodiscard]] uint64_t pc(uint32_t insns) const;
  // The packets of what comes next, up to there. How many outcomes and targets these are.
  uint32_t write_up_to(uint32_t insns, pt::PacketWriter& writer, ReturnStack& returns);

 private:
  // What had happened at a place.
  struct State {
    Path path;
    uint32_t via_count;
  };
  SuperblockWalk(const Block& block, uint32_t insns)
      : block_(block), marks_(code_cache.marks_of(block)), insns_(insns) {}
  [[nodiscard]] State state(uint32_t insns) const;
  uint32_t write_step(pt::PacketWriter& writer, ReturnStack& returns);

  const Block& block_;
  const InsnMark* marks_;
  const Passage* exit_ = nullptr;  // null: the way ends before an instruction
  uint32_t exit_branches_ = 0;
  uint64_t exit_pc_ = 0;
  uint32_t insns_;
  uint32_t written_ = 0;
};

}  // namespace auxtrail::unit
