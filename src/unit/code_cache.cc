// See code_cache.h. Signal safe; compiled without vector registers because it runs on behalf of
// translated code.
#include "unit/code_cache.h"

#include <sys/mman.h>

#include "unit/address_filters.h"
#include "unit/clock.h"
#include "unit/session.h"
#include "unit/sys.h"
#include "unit/tls_offsets.h"
#include "unit/translator.h"
#include "unit/window.h"

namespace auxtrail::unit {

CodeCache code_cache;

namespace {

using channel::kPageBytes;
constexpr uint32_t kMaxExitsOfBlock = Translator::kMaxExits;

// Page faults in new memory would cost more than translating: ask for many pages at once, a little
// ahead of use.
void prefault(uint8_t* needed_to, uint8_t** prefaulted, uint8_t* limit) {
  constexpr size_t kStep = 64 * 1024;
  if (needed_to <= *prefaulted) return;
  const auto least = reinterpret_cast<uint64_t>(needed_to);
  uint64_t to = reinterpret_cast<uint64_t>(*prefaulted) + kStep;
  if (to < least) to = (least + kPageBytes - 1) & ~uint64_t{kPageBytes - 1};
  if (to > reinterpret_cast<uint64_t>(limit)) to = reinterpret_cast<uint64_t>(limit);
  sys::populate(reinterpret_cast<uint64_t>(*prefaulted), to);
  *prefaulted = reinterpret_cast<uint8_t*>(to);
}
// The same for the first `needed` of an array's `most` elements.
template <class T>
void prefault(T* array, size_t needed, size_t most, uint8_t** prefaulted) {
  prefault(reinterpret_cast<uint8_t*>(array + needed), prefaulted,
           reinterpret_cast<uint8_t*>(array + most));
}

}  // namespace

bool CodeCache::ensure_ready() {
  if (ready_ || failed_) return ready_;
  failed_ = true;  // should a fault end init() early
  ready_ = init() && map_.refresh(nullptr, nullptr);
  failed_ = !ready_;
  return ready_;
}

bool CodeCache::init() {
  blocks_ = sys::reserve<Block>(kMaxBlocks);
  marks_ = sys::reserve<InsnMark>(kMaxMarks);
  exits_ = sys::reserve<Exit>(kMaxExits);
  passages_ = sys::reserve<Passage>(kMaxExits);
  details_ = sys::reserve<PassageDetails>(kMaxExits);
  vias_ = sys::reserve<Via>(kMaxViasInAll);
  table_ = static_cast<uint64_t*>(
      sys::mmap(nullptr, kTableEntries * sizeof(uint64_t), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT | MAP_POPULATE));
  if (blocks_ == nullptr || marks_ == nullptr || exits_ == nullptr || passages_ == nullptr ||
      details_ == nullptr || vias_ == nullptr || table_ == nullptr || !grow_hash()) {
    return false;
  }
  blocks_prefaulted_ = reinterpret_cast<uint8_t*>(blocks_);
  marks_prefaulted_ = reinterpret_cast<uint8_t*>(marks_);
  exits_prefaulted_ = reinterpret_cast<uint8_t*>(exits_);
  passages_prefaulted_ = reinterpret_cast<uint8_t*>(passages_);
  details_prefaulted_ = reinterpret_cast<uint8_t*>(details_);
  vias_prefaulted_ = reinterpret_cast<uint8_t*>(vias_);
  const auto own = reinterpret_cast<uint64_t>(this);
  if (!add_arena(own, own + kPageBytes)) return false;
  for (size_t i = 0; i < kTableEntries; ++i) {
    table_[i] = reinterpret_cast<uint64_t>(arenas_[0].indirect_stub);
  }
  exit_trap_ = reinterpret_cast<uint64_t>(arenas_[0].used);
  *arenas_[0].used = 0xcc;
  arenas_[0].used += 16;
  return true;
}

bool CodeCache::try_lock() {
  for (int spin = 0; spin < 200; ++spin) {
    if (__atomic_exchange_n(&lock_, 1u, __ATOMIC_ACQUIRE) == 0) return true;
    __builtin_ia32_pause();
  }
  return false;
}

void CodeCache::lock() {
  while (!try_lock()) sys::sched_yield();
}

void CodeCache::unlock() { __atomic_store_n(&lock_, 0u, __ATOMIC_RELEASE); }

void CodeCache::after_fork() {
  const bool was_changing = lock_ != 0;
  unlock();
  suspended_ = 0;
  if (!was_changing) return;
  for (uint32_t i = 0; i < block_count_; ++i) drop_block(blocks_[i]);
  (void)map_.refresh(nullptr, nullptr);
}

size_t CodeCache::hash_slot(uint64_t pc) const {
  return static_cast<size_t>(pc * 0x9e3779b97f4a7c15 >> 44) & (hash_slots_ - 1);
}

bool CodeCache::grow_hash() {
  const size_t slots = hash_slots_ == 0 ? kFirstHashSlots : hash_slots_ * 2;
  auto* fresh = static_cast<Slot*>(sys::mmap(nullptr, slots * sizeof(Slot), PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE));
  if (fresh == nullptr) return false;
  Slot* old = hash_;
  const size_t old_slots = hash_slots_;
  hash_ = fresh;
  asm volatile(""
               :
               :
               : "memory");  // a child forked in between must not find the size without the table
  hash_slots_ = slots;
  for (size_t i = 0; i < old_slots; ++i) {
    if (old[i].id != 0) insert(blocks_[old[i].id - 1]);
  }
  if (old != nullptr) sys::munmap(old, old_slots * sizeof(Slot));
  return true;
}

Block* CodeCache::find(uint64_t pc) {
  for (size_t slot = hash_slot(pc);; slot = (slot + 1) & (hash_slots_ - 1)) {
    const auto [pc_low, id] = hash_[slot];
    if (id == 0) return nullptr;
    if (pc_low == static_cast<uint32_t>(pc) && blocks_[id - 1].pc == pc) return &blocks_[id - 1];
  }
}

// A dead block's slot is taken over by its successor, so a program address has one slot at most.
void CodeCache::insert(Block& block) {
  for (size_t slot = hash_slot(block.pc);; slot = (slot + 1) & (hash_slots_ - 1)) {
    const uint32_t id = hash_[slot].id;
    if (id == 0 || blocks_[id - 1].pc == block.pc) {
      hash_[slot] = {static_cast<uint32_t>(block.pc), static_cast<uint32_t>(&block - blocks_) + 1};
      return;
    }
  }
}

namespace {

Translator::Options translator_options(uint64_t pc, bool hot) {
  Translator::Options options;
  options.continuous = session.config.continuous != 0;
  options.compress_returns = (session.config.leader.config & kNoReturnCompression) == 0;
  if (options.continuous) options.reach = hot ? Translator::kHot : Translator::kContinuous;
  options.filtered = address_filters.active();
  if (options.filtered) options.same_filter = address_filters.ranges().around(pc);
  return options;
}

}  // namespace

Block* CodeCache::get(uint64_t pc, bool may_translate, channel::Reason* why) {
  Block* block = find(pc);
  if (block != nullptr && !block->dead) return block;
  Segment* segment = map_.find(pc);
  if (segment == nullptr && !map_.is_patched(pc) && look_for_new_code()) segment = map_.find(pc);
  if (segment == nullptr) {
    *why = map_.is_own(pc)       ? channel::Reason::kInterposed
           : map_.is_patched(pc) ? channel::Reason::kPatchedCode
                                 : channel::Reason::kForeignCode;
    return nullptr;
  }
  if (!may_translate) {
    *why = channel::Reason::kColdCode;
    return nullptr;
  }
  return translate(*segment, pc, false, why);
}

Block* CodeCache::translate(Segment& segment, uint64_t pc, bool hot, channel::Reason* why) {
  Arena* arena = arena_for(segment);
  if (arena == nullptr || block_count_ == kMaxBlocks ||
      (block_count_ * 2 >= hash_slots_ && !grow_hash()) ||
      mark_count_ + Translator::kMaxInsns > kMaxMarks ||
      exit_count_ + kMaxExitsOfBlock > kMaxExits || via_count_ + kMaxVias > kMaxViasInAll ||
      !arena->has_room(Translator::kMaxCodeBytes)) {
    *why = channel::Reason::kCacheFull;
    return nullptr;
  }
  prefault(arena->used + Translator::kMaxCodeBytes, &arena->prefaulted, arena->end);
  prefault(blocks_, block_count_ + 1, kMaxBlocks, &blocks_prefaulted_);
  prefault(marks_, mark_count_ + Translator::kMaxInsns, kMaxMarks, &marks_prefaulted_);
  prefault(exits_, exit_count_ + kMaxExitsOfBlock, kMaxExits, &exits_prefaulted_);
  prefault(passages_, exit_count_ + kMaxExitsOfBlock, kMaxExits, &passages_prefaulted_);
  if (session.config.continuous != 0) {  // windows do not touch these
    prefault(details_, exit_count_ + kMaxExitsOfBlock, kMaxExits, &details_prefaulted_);
    prefault(vias_, via_count_ + kMaxVias, kMaxViasInAll, &vias_prefaulted_);
  }
  Block& fresh = blocks_[block_count_];
  Translator translator(*this, segment, *arena, marks_ + mark_count_,
                        {exits_ + exit_count_, passages_ + exit_count_, details_ + exit_count_,
                         exit_count_, vias_ + via_count_, via_count_});
  if (!translator.translate(pc, &fresh, translator_options(pc, hot))) {
    *why = translator.refusal();
    return nullptr;
  }
  fresh.first_mark = mark_count_;
  fresh.first_exit = exit_count_;
  fresh.first_via = via_count_;
  fresh.exit_count = static_cast<uint8_t>(translator.exit_count());
  mark_count_ += fresh.mark_count;
  exit_count_ += translator.exit_count();
  via_count_ += translator.via_count();
  arena->used += fresh.code_bytes;
  __atomic_store_n(&arena->blocks[arena->block_count], block_count_, __ATOMIC_RELAXED);
  __atomic_store_n(&block_count_, block_count_ + 1, __ATOMIC_RELEASE);  // for block_of_exit()
  // locate() may run in another thread's fault handler: the count is what publishes the entry.
  __atomic_store_n(&arena->block_count, arena->block_count + 1, __ATOMIC_RELEASE);
  insert(fresh);
  return &fresh;
}

bool CodeCache::is_fresh(const Block& block) const {
  uint64_t hash = Translator::kHashSeed;
  for (uint32_t i = 0; i < block.mark_count; ++i) {
    const InsnMark& mark = marks_[block.first_mark + i];
    const auto* source = reinterpret_cast<const uint8_t*>(block.segment_start + mark.pc_offset);
    hash = Translator::hash_insn(hash, source, mark.length);
  }
  return hash == block.source_hash;
}

uint8_t* CodeCache::chained(uint32_t number) const {
  auto* after = reinterpret_cast<uint8_t*>(exits_[number].field) + sizeof(int32_t);
  int32_t distance;
  __builtin_memcpy(&distance, after - sizeof distance, sizeof distance);
  return distance == 0 ? nullptr : after + distance;  // the way out lies right behind the jump
}

void CodeCache::chain(uint32_t number, const Block& target) {
  Exit& exit = exits_[number];
  auto* field = reinterpret_cast<uint8_t*>(exit.field);
  Arena* arena = arena_of(field);
  if (arena == nullptr) return;
  // Between distant arenas exits keep going through the stub.
  const int64_t distance = target.code - arena->base;
  const bool reaches =
      distance == static_cast<int32_t>(distance) &&
      distance - int64_t{kArenaBytes} == static_cast<int32_t>(distance - int64_t{kArenaBytes});
  if (exit.state == Exit::kLogged) {
    if (reaches) Emitter::set_rel32(field, target.code);
    return;
  }
  if (exit.state != Exit::kUnlogged || !arena->has_room(kMaxLoggedExitBytes)) return;
  Emitter emit(arena->used, arena->end);
  uint8_t* const code = emit.here();
  const uint8_t* next = emit_logged_exit(emit, tls_offsets(), LogWord(number, passages_[number]),
                                         arena->logged_stub, reaches ? target.code : nullptr);
  if (next == nullptr) return;
  arena->used = emit.here();
  exit.field = reinterpret_cast<uint64_t>(next) & kTargetMask;
  exit.state = Exit::kLogged;
  Emitter::set_rel32(field, code);
}

// A thunk compares the branch target, in rax, with its block's address without touching flags:
//   mov rcx, -pc; lea rcx, [rcx+rax]; jrcxz hit; jmp [next]
//   hit: mov rax, fs:rax; mov rcx, fs:rcx; jmp block
constexpr size_t kThunkHitOffset = 10 + 4 + 1;
constexpr uint8_t kThunkHit = 6 + 8;
void CodeCache::publish_indirect(Block& block) {
  if (block.thunk != nullptr) return;
  Arena* arena = arena_of(block.code);
  if (arena == nullptr || !arena->has_room(128)) return;
  const TlsOffsets tls = tls_offsets();
  Emitter emit(arena->used, arena->end);
  emit.align(16);
  uint8_t* entry = emit.here();
  emit.code(0x48, 0xb9);
  emit.u64(uint64_t{0} - block.pc);
  emit.code(0x48, 0x8d, 0x0c, 0x01);  // lea rcx, [rcx+rax]
  emit.code(0xe3, kThunkHit);         // jrcxz hit
  emit.code(0xff, 0x25);              // jmp qword [rip+0]
  emit.u32(0);
  uint64_t& head = table_[block.pc & (kTableEntries - 1)];
  emit.u64(head);
  emit.fs_load(Reg::kRax, tls.rax);
  emit.fs_load(Reg::kRcx, tls.rcx);
  emit.jump(block.code);
  if (emit.overflowed()) return;
  arena->used = emit.here();
  block.thunk = entry;
  __atomic_store_n(&head, reinterpret_cast<uint64_t>(entry), __ATOMIC_RELEASE);
}

void CodeCache::drop(uint64_t start, uint64_t end) {
  for (size_t i = 0; i < map_.size(); ++i) {
    Segment& segment = map_.segment(i);
    if (segment.start < end && start < segment.end) {
      drop_segment(segment);
      segment.state = SegmentState::kGone;
      note_code_change();
    }
  }
}

void CodeCache::drop_segment(const Segment& segment) {
  for (uint32_t i = 0; i < block_count_; ++i) {
    Block& block = blocks_[i];
    if (!block.dead && block.pc >= segment.start && block.pc < segment.end) drop_block(block);
  }
}

void CodeCache::drop_block(Block& block) {
  block.dead = true;
  __atomic_store_n(block.code, uint8_t{0xcc}, __ATOMIC_RELEASE);
  // Its thunk hits no more: the next one in the chain, or else unit_indirect(), is asked.
  if (block.thunk != nullptr) __atomic_store_n(block.thunk + kThunkHitOffset, 0, __ATOMIC_RELEASE);
  block.thunk = nullptr;
}

// A child forked in the middle of a change starts from 0 and ends the change as well.
void CodeCache::end_change() {
  if (__atomic_load_n(&suspended_, __ATOMIC_RELAXED) != 0) {
    __atomic_sub_fetch(&suspended_, 1, __ATOMIC_RELAXED);
  }
}

void CodeCache::suspend_loaded_code() {
  begin_change();
  note_code_change();
  for (size_t i = 0; i < map_.size(); ++i) {
    Segment& segment = map_.segment(i);
    if (segment.initial || segment.state != SegmentState::kWatched) continue;
    drop_segment(segment);
    segment.state = SegmentState::kSuspended;
  }
}

void CodeCache::resume_loaded_code() {
  end_change();
  if (suspended_ == 0 && ready_) reread_map();
}

void CodeCache::reread_map() {
  const auto drop_gone = [](const Segment& segment, void* cache) {
    static_cast<CodeCache*>(cache)->drop_segment(segment);
  };
  (void)map_.refresh(drop_gone, this);
  if (session.memory != nullptr) {
    session.header()->maps_changed.fetch_add(1, std::memory_order_relaxed);
  }
}

bool CodeCache::look_for_new_code() {
  constexpr uint64_t kRest = 64;  // times the cost of the last look
  constexpr uint64_t kLeastTicks = 4000000;
  const uint64_t start = ticks();
  const uint64_t since = start - last_look_ticks_;
  if (suspended_ != 0 || since < kLeastTicks || since < kRest * look_cost_ticks_) return false;
  reread_map();
  last_look_ticks_ = ticks();
  look_cost_ticks_ = last_look_ticks_ - start;
  return true;
}

}  // namespace auxtrail::unit
