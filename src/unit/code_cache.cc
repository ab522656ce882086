// See code_cache.h. Signal safe; compiled without vector registers because it runs on behalf of
// translated code.
#include "unit/code_cache.h"

#include <sys/mman.h>

#include "unit/clock.h"
#include "unit/session.h"
#include "unit/sys.h"
#include "unit/tls_offsets.h"
#include "unit/translator.h"
#include "unit/window.h"

namespace auxtrail::unit {

CodeCache code_cache;

namespace {

constexpr int kLazy = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
using channel::kPageBytes;
constexpr uint64_t kReach = uint64_t{1} << 30;  // leaves room within rel32 for data on the far side
constexpr uint32_t kMaxExitsOfBlock = Translator::kMaxExits;

template <class T>
T* reserve(size_t count) {
  return static_cast<T*>(sys::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, kLazy));
}

// Page faults in new memory would cost more than translating: ask for many pages at once, a little
// ahead of use.
void prefault(uint8_t* needed_to, uint8_t** prefaulted, uint8_t* limit) {
  constexpr size_t kStep = 64 * 1024;
  if (needed_to <= *prefaulted) return;
  const auto least = reinterpret_cast<uint64_t>(needed_to);
  uint64_t to = reinterpret_cast<uint64_t>(*prefaulted) + kStep;
  if (to < least) to = (least + kPageBytes - 1) & ~uint64_t{kPageBytes - 1};
  if (to > reinterpret_cast<uint64_t>(limit)) to = reinterpret_cast<uint64_t>(limit);
  constexpr int kPopulateWrite =
      23;  // MADV_POPULATE_WRITE; older kernels refuse and fault page by page
  const auto from = reinterpret_cast<uint64_t>(*prefaulted);
  (void)sys::call(SYS_madvise, static_cast<long>(from), static_cast<long>(to - from),
                  kPopulateWrite);
  *prefaulted = reinterpret_cast<uint8_t*>(to);
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
  blocks_ = reserve<Block>(kMaxBlocks);
  marks_ = reserve<InsnMark>(kMaxMarks);
  exits_ = reserve<Exit>(kMaxExits);
  passages_ = reserve<Passage>(kMaxExits);
  details_ = reserve<PassageDetails>(kMaxExits);
  vias_ = reserve<Via>(kMaxViasInAll);
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

Translator::Options translator_options() {
  return {.continuous = session.config.continuous != 0,
          .compress_returns = (session.config.leader.config & kNoReturnCompression) == 0};
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
  return translate(*segment, pc, why);
}

Block* CodeCache::translate(Segment& segment, uint64_t pc, channel::Reason* why) {
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
  prefault(reinterpret_cast<uint8_t*>(blocks_ + block_count_ + 1), &blocks_prefaulted_,
           reinterpret_cast<uint8_t*>(blocks_ + kMaxBlocks));
  prefault(reinterpret_cast<uint8_t*>(marks_ + mark_count_ + Translator::kMaxInsns),
           &marks_prefaulted_, reinterpret_cast<uint8_t*>(marks_ + kMaxMarks));
  prefault(reinterpret_cast<uint8_t*>(exits_ + exit_count_ + kMaxExitsOfBlock), &exits_prefaulted_,
           reinterpret_cast<uint8_t*>(exits_ + kMaxExits));
  prefault(reinterpret_cast<uint8_t*>(passages_ + exit_count_ + kMaxExitsOfBlock),
           &passages_prefaulted_, reinterpret_cast<uint8_t*>(passages_ + kMaxExits));
  if (session.config.continuous != 0) {  // windows do not touch these
    prefault(reinterpret_cast<uint8_t*>(details_ + exit_count_ + kMaxExitsOfBlock),
             &details_prefaulted_, reinterpret_cast<uint8_t*>(details_ + kMaxExits));
    prefault(reinterpret_cast<uint8_t*>(vias_ + via_count_ + kMaxVias), &vias_prefaulted_,
             reinterpret_cast<uint8_t*>(vias_ + kMaxViasInAll));
  }
  Block& fresh = blocks_[block_count_];
  Translator translator(*this, segment, *arena, marks_ + mark_count_,
                        {exits_ + exit_count_, passages_ + exit_count_, details_ + exit_count_,
                         exit_count_, vias_ + via_count_, via_count_});
  if (!translator.translate(pc, &fresh, translator_options())) {
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
  ++block_count_;
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
  const uint8_t* next = emit_logged_exit(emit, tls_offsets(), number, passages_[number].units,
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

CodeCache::Arena* CodeCache::arena_of(const uint8_t* code) {
  for (size_t i = 0; i < arena_count_; ++i) {
    if (code >= arenas_[i].base && code < arenas_[i].end) return &arenas_[i];
  }
  return nullptr;
}

bool CodeCache::in_cache(uint64_t address) const {
  const size_t count = __atomic_load_n(&arena_count_, __ATOMIC_ACQUIRE);
  for (size_t i = 0; i < count; ++i) {
    if (address >= reinterpret_cast<uint64_t>(arenas_[i].base) &&
        address < reinterpret_cast<uint64_t>(arenas_[i].end)) {
      return true;
    }
  }
  return false;
}

bool CodeCache::in_stub(uint64_t address) const {
  const size_t count = __atomic_load_n(&arena_count_, __ATOMIC_ACQUIRE);
  for (size_t i = 0; i < count; ++i) {
    if (address >= reinterpret_cast<uint64_t>(arenas_[i].base) &&
        address < reinterpret_cast<uint64_t>(arenas_[i].stubs_end)) {
      return true;
    }
  }
  return false;
}

const Block* CodeCache::last_block(const Arena& arena, const uint8_t* code) const {
  size_t low = 0;
  size_t high = __atomic_load_n(&arena.block_count, __ATOMIC_ACQUIRE);
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (blocks_[arena.blocks[middle]].code <= code) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == 0 ? nullptr : &blocks_[arena.blocks[low - 1]];
}

const Block* CodeCache::block_at(uint64_t address) const {
  const auto* code = reinterpret_cast<const uint8_t*>(address);
  const size_t arenas = __atomic_load_n(&arena_count_, __ATOMIC_ACQUIRE);
  for (size_t a = 0; a < arenas; ++a) {
    if (code < arenas_[a].base || code >= arenas_[a].end) continue;
    const Block* const block = last_block(arenas_[a], code);
    return block != nullptr && block->code == code ? block : nullptr;
  }
  return nullptr;
}

bool CodeCache::locate(uint64_t address, const Block** block, const InsnMark** mark) const {
  const auto* code = reinterpret_cast<const uint8_t*>(address);
  const size_t arenas = __atomic_load_n(&arena_count_, __ATOMIC_ACQUIRE);
  for (size_t a = 0; a < arenas; ++a) {
    const Arena& arena = arenas_[a];
    if (code < arena.base || code >= arena.end) continue;
    const Block* const found = last_block(arena, code);
    if (found == nullptr || code >= found->code + found->body_bytes || found->mark_count == 0) {
      return false;
    }
    const auto offset = static_cast<uint32_t>(code - found->code);
    const InsnMark* best = &marks_[found->first_mark];
    for (uint32_t i = 1; i < found->mark_count; ++i) {
      const InsnMark& next = marks_[found->first_mark + i];
      if (next.code_offset > offset) break;
      best = &next;
    }
    *block = found;
    *mark = best;
    return true;
  }
  return false;
}

CodeCache::Arena* CodeCache::arena_for(Segment& segment) {
  if (segment.arena != CodeMap::kNoArena) return &arenas_[segment.arena];
  const auto reaches = [&](const Arena& arena) {
    const auto base = reinterpret_cast<uint64_t>(arena.base);
    const auto end = reinterpret_cast<uint64_t>(arena.end);
    const uint64_t low = base < segment.start ? base : segment.start;
    const uint64_t high = end > segment.end ? end : segment.end;
    return high - low < kReach && arena.used + Translator::kMaxCodeBytes <= arena.end;
  };
  for (size_t i = 0; i < arena_count_; ++i) {
    if (reaches(arenas_[i])) {
      segment.arena = static_cast<uint32_t>(i);
      return &arenas_[i];
    }
  }
  if (!add_arena(segment.start, segment.end)) return nullptr;
  segment.arena = static_cast<uint32_t>(arena_count_ - 1);
  return &arenas_[segment.arena];
}

// Looks for free address space around [near_start, near_end), below it first: programs grow
// upwards.
bool CodeCache::add_arena(uint64_t near_start, uint64_t near_end) {
  if (arena_count_ == kMaxArenas) return false;
  constexpr uint64_t kStep = uint64_t{16} << 20;
  constexpr int kFixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  void* base = nullptr;
  for (uint64_t distance = kStep; distance < kReach - kArenaBytes && base == nullptr;
       distance += kStep) {
    const uint64_t below = (near_start - kArenaBytes - distance) & ~(kStep - 1);
    const uint64_t above = (near_end + distance) & ~(kStep - 1);
    for (const uint64_t hint : {below, above}) {
      if (hint < (uint64_t{1} << 20) || hint >= (uint64_t{1} << 47) - kArenaBytes) continue;
      void* got = sys::mmap(reinterpret_cast<void*>(hint), kArenaBytes,
                            PROT_READ | PROT_WRITE | PROT_EXEC, kFixed);
      if (got == nullptr) continue;
      if (got == reinterpret_cast<void*>(hint)) {
        base = got;
        break;
      }
      sys::munmap(got, kArenaBytes);  // a kernel without MAP_FIXED_NOREPLACE
    }
  }
  if (base == nullptr) return false;
  auto* ids = reserve<uint32_t>(kMaxBlocks);
  if (ids == nullptr) {
    sys::munmap(base, kArenaBytes);
    return false;
  }
  auto* start = static_cast<uint8_t*>(base);
  Arena& arena = arenas_[arena_count_];
  arena.base = arena.used = arena.prefaulted = start;
  arena.end = start + kArenaBytes;
  arena.blocks = ids;
  Emitter emit(start, arena.end);
  arena.unlogged_stub = emit.here();
  emit_common_stub(emit, StubEntry::kRaxAndRcxLive, reinterpret_cast<uint64_t>(&unit_exit));
  emit.align(16);
  arena.logged_stub = emit.here();
  emit_common_stub(emit, StubEntry::kRaxLive, reinterpret_cast<uint64_t>(&unit_exit));
  emit.align(16);
  arena.indirect_stub = emit.here();
  emit_common_stub(emit, StubEntry::kNoneLive, reinterpret_cast<uint64_t>(&unit_indirect));
  emit.align(16);
  arena.used = arena.stubs_end = emit.here();
  __atomic_store_n(&arena_count_, arena_count_ + 1, __ATOMIC_RELEASE);
  return true;
}

// Saves the program's registers and flags on the unit's stack, calls `function`(Thread*) and goes
// on at the address it returns with everything restored.
void CodeCache::emit_common_stub(Emitter& emit, StubEntry entry, uint64_t function) {
  const TlsOffsets tls = tls_offsets();
  if (entry == StubEntry::kRaxAndRcxLive) emit.fs_store(tls.rcx, Reg::kRcx);
  // The program's rax, or the target of an indirect branch.
  emit.fs_store(entry != StubEntry::kNoneLive ? tls.rax : tls.target, Reg::kRax);
  emit.fs_load(Reg::kRax, tls.thread);
  emit.code(0x48, 0x89, 0x60, kThreadSavedRsp);               // mov [rax+saved_rsp], rsp
  emit.code(0x48, 0x8b, 0x60, kThreadStackTop);               // mov rsp, [rax+stack_top]
  emit.code(0x9c, 0xfc);                                      // pushfq; cld
  emit.code(0x52, 0x53, 0x55, 0x56, 0x57);                    // push rdx, rbx, rbp, rsi, rdi
  for (uint8_t r = 0; r < 8; ++r) emit.code(0x41, 0x50 + r);  // push r8..r15
  emit.code(0x48, 0x89, 0xc7);                                // mov rdi, rax
  emit.code(0x48, 0xb8);                                      // mov rax, function
  emit.u64(function);
  emit.code(0xff, 0xd0);  // call rax
  emit.fs_store(tls.resume, Reg::kRax);
  for (uint8_t r = 8; r-- > 0;) emit.code(0x41, 0x58 + r);  // pop r15..r8
  emit.code(0x5f, 0x5e, 0x5d, 0x5b, 0x5a, 0x9d);            // pop rdi, rsi, rbp, rbx, rdx; popfq
  emit.fs_load(Reg::kRax, tls.thread);
  emit.code(0x48, 0x8b, 0x60, kThreadSavedRsp);  // mov rsp, [rax+saved_rsp]
  emit.fs_load(Reg::kRax, tls.rax);
  emit.fs_load(Reg::kRcx, tls.rcx);
  emit.fs_jump(tls.resume);
}

}  // namespace auxtrail::unit
