// CodeCache: translated superblocks, where they are, and how translated code finds the next one.
//
// One cache per process, shared by its threads. Execution in it is lock free; changing it needs the
// translator lock. Published code is immutable but for four things, all single atomic stores: the
// rel32 of an exit that gets its logged code or is chained to its target, the first byte of a
// superblock that is dropped (it becomes int3, so that whoever reaches it leaves the cache), one in
// its thunk, and the first instruction of a superblock that was made anew (hot_code.cc).
// Nothing is ever freed: a thread may be anywhere in it.
//
// A superblock (translator.h) keeps the program's registers, flags and stack exactly as the program
// would have them at each instruction boundary; InsnMark tells which cache bytes stand for which
// instruction, so that a fault can be told in the program's own terms.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/layout.h"
#include "unit/branch_bias.h"
#include "unit/branch_log.h"
#include "unit/code_map.h"
#include "unit/emitter.h"
#include "unit/exit_code.h"
#include "unit/passage.h"

namespace auxtrail::unit {

// Cache bytes from code_offset up to the next mark stand for the instruction at segment_start +
// pc_offset.
struct InsnMark {
  uint32_t pc_offset;
  uint16_t code_offset;
  uint8_t length : 7;   // of the program's instruction
  uint8_t spilled : 1;  // the program's rax is in TlsBlock::rax
  // The way to it from the superblock's first, and how many of the instructions there are branches.
  uint32_t path : 17;
  uint32_t via_count : 3;
  uint32_t branches : 9;
  uint32_t is_call : 1;           // one that decoders expect to return
  uint32_t is_paired_return : 1;  // from such a call of the superblock
};
static_assert(sizeof(InsnMark) == 12 && kMaxPathBits < 17 && kMaxVias < 8);

// An exit that was taken that often is worth a look (hot_code.cc).
inline constexpr uint32_t kHotHits = 128;
inline constexpr uint32_t kJudgedHits = 1 << 14;  // all is known of it by then

// Of the leader's config: intel_pt/noretcomp/.
inline constexpr uint64_t kNoReturnCompression = 0x800;

struct Block {
  uint64_t pc;
  uint8_t* code;  // entry with all registers as the program's
  uint64_t segment_start;
  uint64_t source_hash;  // of the program's instruction bytes
  uint32_t body_bytes;   // translated instructions and the exit at their end
  uint32_t code_bytes;
  uint32_t first_mark;
  uint32_t first_exit;
  uint32_t first_via;
  uint16_t mark_count;
  uint8_t exit_count;
  uint8_t generation;  // how often it was made anew (hot_code.cc)
  bool dead;
  uint8_t* thunk;  // in the indirect branch table, or null
};

class CodeCache {
 public:
  // Maps the tables, generates the common stubs and reads the program's mappings, once; later calls
  // only tell how that went. Done at the process's first overflow: most processes of a build or a
  // shell script end before. Needs the lock. False if memory of the right kind can't be had.
  bool ensure_ready();

  // The lock for everything below but what says "any time" and the const look-ups by number or
  // address. Fails after a bounded wait.
  bool try_lock();
  void lock();  // waits; only for the program's normal flow, never in a handler
  void unlock();
  // In a forked child, single threaded. If a thread that is not here any more was changing the
  // cache, all translations go and the program's mappings are read anew.
  void after_fork();

  CodeMap& map() { return map_; }

  // The live superblock at `pc`, translated if need be and if `may_translate`; null with the reason
  // otherwise.
  Block* get(uint64_t pc, bool may_translate, channel::Reason* why);
  // Whether the program's bytes are still those the block was made from.
  [[nodiscard]] bool is_fresh(const Block& block) const;
  // By the number of the exit. Any thread, any time.
  [[nodiscard]] Passage* passages() const { return passages_; }
  [[nodiscard]] PassageDetails* passage_details() const { return details_; }
  [[nodiscard]] const Via* vias() const { return vias_; }
  // The direct exit of that number. Any thread, any time; while `state` is kUnlogged, it and
  // `field` need the lock.
  [[nodiscard]] Exit& exit(uint32_t number) { return exits_[number]; }
  // Where the logged code of an exit goes on by itself; null while that is nowhere. Any time: once
  // the logged code runs, `field` does not change any more.
  [[nodiscard]] uint8_t* chained(uint32_t number) const;
  // Makes an exit log inline and go straight to `target` from now on.
  void chain(uint32_t number, const Block& target);
  // The exit of that number was taken kHotHits times or more: maybe its superblock is made anew.
  void improve(uint32_t number);
  // Makes `block` reachable by inline indirect lookup.
  void publish_indirect(Block& block);

  // Drops every translation of code in a segment that touches [start, end).
  void drop(uint64_t start, uint64_t end);
  void drop_segment(const Segment& segment);

  // While a change of mappings is under way the map is not read anew: it would show what is about
  // to change.
  void begin_change() { __atomic_add_fetch(&suspended_, 1, __ATOMIC_RELAXED); }
  void end_change();
  // Around a dlclose: code loaded later than the unit is dropped and stays native until the last
  // resume.
  void suspend_loaded_code();
  void resume_loaded_code();
  // Looks for executable mappings that appeared since the last look; at most a small share of time
  // goes into it. True if the map was read anew.
  bool look_for_new_code();

  // Any thread, any time: is `address` in translated code or a stub?
  [[nodiscard]] bool in_cache(uint64_t address) const;
  // Is it in one of the common stubs, on the way to or from C++ code?
  [[nodiscard]] bool in_stub(uint64_t address) const;
  // The superblock and instruction whose translation holds `address`; false in stubs.
  bool locate(uint64_t address, const Block** block, const InsnMark** mark) const;
  // The superblock whose translation begins at `address`, or null. Any thread, any time.
  [[nodiscard]] const Block* block_at(uint64_t address) const;
  [[nodiscard]] uint64_t exit_trap() const { return exit_trap_; }
  [[nodiscard]] uint64_t blocks_translated() const { return block_count_; }
  // Rises whenever code goes away: packets from before can't be decoded any more.
  [[nodiscard]] uint32_t code_changes() const {
    return __atomic_load_n(&code_changes_, __ATOMIC_RELAXED);
  }
  [[nodiscard]] Way way_to(const Block& block, const InsnMark& mark) const {
    return {block.first_via, mark.via_count, mark.path, &block,
            static_cast<uint32_t>(&mark - marks_of(block))};
  }
  // Of its instructions, in the order it has them; the way through it that the translator followed.
  [[nodiscard]] const InsnMark* marks_of(const Block& block) const {
    return marks_ + block.first_mark;
  }
  // The superblock of an exit that a thread took. Any thread, any time.
  [[nodiscard]] Block& block_of_exit(uint32_t number) const;
  [[nodiscard]] uint64_t pc_of(const Block& block, const InsnMark& mark) const {
    return block.segment_start + mark.pc_offset;
  }

 private:
  friend class Translator;

  struct Arena {
    uint8_t* base;
    uint8_t* end;
    uint8_t* used;
    uint8_t* unlogged_stub;  // common code behind direct exits (exit_code.h)
    uint8_t* logged_stub;
    uint8_t* indirect_stub;  // common code behind indirect lookups that miss
    uint8_t* stubs_end;
    uint8_t* prefaulted;  // memory is there up to here
    uint32_t* blocks;     // ids in the order of their code
    uint32_t block_count = 0;

    [[nodiscard]] bool has_room(size_t bytes) const { return used + bytes <= end; }
  };
  static constexpr size_t kMaxArenas = 16;
  static constexpr size_t kArenaBytes = size_t{48} << 20;
  static constexpr size_t kMaxBlocks = size_t{1} << 19;
  static constexpr size_t kMaxMarks = size_t{1} << 23;
  static constexpr size_t kMaxExits = size_t{1} << 22;
  static constexpr size_t kMaxViasInAll = size_t{1} << 20;
  static constexpr size_t kFirstHashSlots = size_t{1} << 13;
  static constexpr size_t kTableEntries = 65536;
  static constexpr uint8_t kLastGeneration = 6;
  static constexpr size_t kEntryBytes = 5;

  // Of the program's registers that a stub's caller has not saved in TLS.
  enum class StubEntry : uint8_t { kRaxAndRcxLive, kRaxLive, kNoneLive };
  // One hash slot: half of the address saves looking at most superblocks that are not it.
  struct Slot {
    uint32_t pc_low;
    uint32_t id;  // of the block, plus 1
  };

  void note_code_change() { __atomic_add_fetch(&code_changes_, 1, __ATOMIC_RELAXED); }
  // The last superblock of the arena that begins at or before `code`, or null.
  [[nodiscard]] const Block* last_block(const Arena& arena, const uint8_t* code) const;
  static void drop_block(Block& block);
  Block* translate(Segment& segment, uint64_t pc, bool hot, channel::Reason* why);
  bool judge(const Block& block);
  [[nodiscard]] BranchBias::Place place_of(const Block& block, const PassageDetails& details) const;
  bool may_hold(const Block& block, uint64_t target);
  bool judge_indirect(const Block& block, uint32_t number);
  static void redirect(Block& old, const Block& fresh);
  void reread_map();
  bool init();
  Arena* arena_for(Segment& segment);
  bool add_arena(uint64_t near_start, uint64_t near_end);
  void emit_common_stub(Emitter& emit, StubEntry entry, uint64_t function);
  Block* find(uint64_t pc);
  void insert(Block& block);
  bool grow_hash();
  size_t hash_slot(uint64_t pc) const;
  Arena* arena_of(const uint8_t* code);

  CodeMap map_;
  BranchBias bias_ = {};
  Arena arenas_[kMaxArenas];
  size_t arena_count_ = 0;
  Block* blocks_ = nullptr;
  uint32_t block_count_ = 0;
  InsnMark* marks_ = nullptr;
  uint32_t mark_count_ = 0;
  Exit* exits_ = nullptr;
  Passage* passages_ = nullptr;  // of the same exits
  PassageDetails* details_ = nullptr;
  Via* vias_ = nullptr;
  uint32_t via_count_ = 0;
  uint32_t exit_count_ = 0;
  Slot* hash_ = nullptr;
  size_t hash_slots_ = 0;      // a power of two, at least twice the blocks
  uint64_t* table_ = nullptr;  // code address by the low 16 bits of an indirect target; below 2 GiB
  uint64_t exit_trap_ = 0;
  uint32_t lock_ = 0;
  uint8_t* blocks_prefaulted_ = nullptr;
  uint8_t* marks_prefaulted_ = nullptr;
  uint8_t* exits_prefaulted_ = nullptr;
  uint8_t* passages_prefaulted_ = nullptr;
  uint8_t* details_prefaulted_ = nullptr;
  uint8_t* vias_prefaulted_ = nullptr;
  uint32_t suspended_ = 0;
  uint32_t code_changes_ = 0;
  bool ready_ = false;
  bool failed_ = false;
  uint64_t last_look_ticks_ = 0;
  uint64_t look_cost_ticks_ = 0;
};

extern CodeCache code_cache;

}  // namespace auxtrail::unit
