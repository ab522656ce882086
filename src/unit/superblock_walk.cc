// See superblock_walk.h. Signal safe; compiled without vector registers.
#include "unit/superblock_walk.h"

namespace auxtrail::unit {

namespace {

void push(ReturnStack& returns, uint64_t address) {
  const uint64_t returns_to[kMaxPendingCalls] = {address};
  returns.push(returns_to, 1);
}

void write_return(pt::PacketWriter& writer, ReturnStack& returns, uint64_t target) {
  if (returns.pop(target)) return writer.tnt(1, 1);
  writer.flush_tnt();
  writer.tip(target);
}

void write_target(pt::PacketWriter& writer, uint64_t target) {
  writer.flush_tnt();
  writer.tip(target);
}

}  // namespace

SuperblockWalk SuperblockWalk::to_exit(uint32_t number, uint64_t target) {
  const PassageDetails& details = code_cache.passage_details()[number];
  SuperblockWalk walk(code_cache.block_of_exit(number), details.insns);
  walk.exit_ = &code_cache.passages()[number];
  walk.exit_branches_ = details.branches;
  const bool is_direct = walk.exit_->kind == Passage::kDirect;
  walk.exit_pc_ = is_direct ? code_cache.exit(number).target : target & kTargetMask;
  return walk;
}

SuperblockWalk SuperblockWalk::on(const Way& way) { return {*way.block, way.insns}; }

uint32_t SuperblockWalk::branches(uint32_t insns) const {
  return insns == insns_ && exit_ != nullptr ? exit_branches_ : marks_[insns].branches;
}

uint64_t SuperblockWalk::pc(uint32_t insns) const {
  return insns == insns_ && exit_ != nullptr ? exit_pc_ : code_cache.pc_of(block_, marks_[insns]);
}

SuperblockWalk::State SuperblockWalk::state(uint32_t insns) const {
  if (insns == insns_ && exit_ != nullptr) {
    const Path path = 1u << exit_->outcome_count | exit_->outcomes;
    return {path, exit_->via_count};
  }
  return {marks_[insns].path, marks_[insns].via_count};
}

uint32_t SuperblockWalk::write_up_to(uint32_t insns, pt::PacketWriter& writer,
                                     ReturnStack& returns) {
  uint32_t written = 0;
  for (; written_ < insns; ++written_) written += write_step(writer, returns);
  return written;
}

// What the next instruction did. 1 if that was an outcome or a target.
uint32_t SuperblockWalk::write_step(pt::PacketWriter& writer, ReturnStack& returns) {
  const InsnMark& mark = marks_[written_];
  const State before = state(written_);
  const State after = state(written_ + 1);
  const uint64_t target = pc(written_ + 1);
  if (mark.is_call != 0) push(returns, code_cache.pc_of(block_, mark) + mark.length);
  if (after.via_count != before.via_count) {
    const bool is_return = code_cache.vias()[block_.first_via + before.via_count].is_return;
    is_return ? write_return(writer, returns, target) : write_target(writer, target);
    return 1;
  }
  if (path_count(after.path) != path_count(before.path)) {
    if (mark.is_paired_return != 0) {
      write_return(writer, returns, target);
    } else {
      writer.tnt(after.path & 1, 1);
    }
    return 1;
  }
  if (written_ + 1 != insns_ || exit_ == nullptr) return 0;
  switch (exit_->kind) {
    case Passage::kDirect:
      return 0;
    case Passage::kReturn:
      write_return(writer, returns, target);
      return 1;
    case Passage::kMiss:
      returns.clear();
      break;
    case Passage::kIndirect:
      break;
  }
  write_target(writer, target);
  return 1;
}

}  // namespace auxtrail::unit
