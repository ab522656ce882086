// Superblocks that turn out to be left early are made anew, in the direction they really take, and
// longer.
//
// What turns logs into packets, or sets them aside, counts how often each exit is taken
// (learn_exit()). Whenever a count passes a power of two, from
// kHotHits on, the superblock's branches are judged by the counts of its exits: a conditional that
// left more often than it stayed is followed the other way from now on (branch_bias.h), an indirect
// branch at the end to where it leads, and a superblock with such a one is replaced. Signal safe;
// compiled without vector registers.
#include "unit/address_filters.h"
#include "unit/code_cache.h"

namespace auxtrail::unit {

Block& CodeCache::block_of_exit(uint32_t number) const {
  uint32_t low = 0;
  uint32_t high = __atomic_load_n(&block_count_, __ATOMIC_ACQUIRE);
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (blocks_[middle].first_exit <= number) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return blocks_[low];
}

// Where an exit's branch stands.
BranchBias::Place CodeCache::place_of(const Block& block, const PassageDetails& details) const {
  const InsnMark& branch = marks_[block.first_mark + details.insns - 1];
  return {.first_pc = block.pc, .insns = details.insns, .pc = pc_of(block, branch)};
}

// Whether the superblock made anew could go on there: in the same segment, and filtered alike.
bool CodeCache::may_hold(const Block& block, uint64_t target) {
  if (map_.find(target) != map_.find(block.pc)) return false;
  if (!address_filters.active()) return true;
  return address_filters.ranges().around(block.pc).contains(target);
}

// Of an indirect exit that was taken more often than not: whether its superblock should go on where
// that leads. With others behind it, it does so already, and had better not.
bool CodeCache::judge_indirect(const Block& block, uint32_t number) {
  constexpr uint64_t kLeastInARow = 8;
  const PassageDetails& details = details_[number];
  const BranchBias::Place place = place_of(block, details);
  const uint64_t known = bias_.target(place);
  if (known == BranchBias::kNone || passages_[number].hits < kHotHits) return false;
  if (number + 1 != block.first_exit + block.exit_count) {
    bias_.set_target(place, BranchBias::kNone);
    return true;
  }
  const uint64_t target = details.seen & kTargetMask;
  if (details.seen / (kTargetMask + 1) < kLeastInARow) return false;
  if (passages_[number].via_count == kMaxVias || target == block.pc) return false;
  if (!may_hold(block, target)) return false;
  bias_.set_target(place, target);
  return true;
}

// Judges the branches of `block`. Whether some left more often than they stayed.
bool CodeCache::judge(const Block& block) {
  uint64_t stayed = 0;
  bool wrong = false;
  for (uint32_t i = block.exit_count; i-- > 0;) {
    const uint32_t number = block.first_exit + i;
    const Passage& passage = passages_[number];
    const uint64_t left = passage.hits;
    if (passage.is_side_exit && left + stayed != 0) {
      const bool leaves_if_taken = (passage.outcomes & 1) != 0;
      bias_.set(place_of(block, details_[number]), (left > stayed) == leaves_if_taken);
      wrong |= left > stayed;
    }
    // Not made to be hot yet, it ends too early.
    wrong |= i + 1u == block.exit_count && passage.kind == Passage::kDirect &&
             !passage.is_side_exit && block.generation == 0 && left >= kHotHits;
    const bool is_indirect = passage.kind == Passage::kIndirect || passage.kind == Passage::kReturn;
    if (is_indirect && left > stayed) {
      wrong |= judge_indirect(block, number);
    }
    stayed += left;
  }
  return wrong;
}

void CodeCache::improve(uint32_t number) {
  Block& old = block_of_exit(number);
  if (old.dead || old.generation == kLastGeneration || find(old.pc) != &old) return;
  if (!judge(old)) return;
  Segment* const segment = map_.find(old.pc);
  channel::Reason why;
  Block* const fresh = segment != nullptr ? translate(*segment, old.pc, true, &why) : nullptr;
  if (fresh == nullptr) return;
  fresh->generation = static_cast<uint8_t>(old.generation + 1);
  redirect(old, *fresh);
}

// Whoever enters `old` goes on in `fresh`. The first instruction of a superblock is a nop as long
// as a jump, and both lie in eight aligned bytes, which processors read and write at once.
void CodeCache::redirect(Block& old, const Block& fresh) {
  const int64_t distance = fresh.code - (old.code + kEntryBytes);
  if (distance != static_cast<int32_t>(distance)) return;
  uint64_t bytes;
  __builtin_memcpy(&bytes, old.code, sizeof bytes);
  constexpr uint64_t kKept = ~uint64_t{0} << 8 * kEntryBytes;
  bytes = (bytes & kKept) | uint64_t{static_cast<uint32_t>(distance)} << 8 | 0xe9;
  __atomic_store_n(reinterpret_cast<uint64_t*>(old.code), bytes, __ATOMIC_RELEASE);
}

}  // namespace auxtrail::unit
