// The code cache's memory: arenas near the program's code, their common stubs, and what lies at an
// address in them. Signal safe; compiled without vector registers.
#include <sys/mman.h>

#include "unit/code_cache.h"
#include "unit/sys.h"
#include "unit/thread_state.h"
#include "unit/tls_offsets.h"
#include "unit/translator.h"
#include "unit/window.h"

namespace auxtrail::unit {
namespace {

constexpr uint64_t kReach = uint64_t{1} << 30;  // leaves room within rel32 for data on the far side

}  // namespace

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
  auto* ids = sys::reserve<uint32_t>(kMaxBlocks);
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
