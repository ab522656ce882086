// See branch_log.h. Signal safe; compiled without vector registers.
#include "unit/branch_log.h"

#include "unit/address_filters.h"
#include "unit/code_cache.h"
#include "unit/session.h"
#include "unit/thread_state.h"
#include "unit/tls_offsets.h"
#include "unit/trace_output.h"

namespace auxtrail::unit {

namespace {

// Where an indirect exit leads, for PassageDetails::seen.
inline void note_target(PassageDetails& details, uint64_t target) {
  const uint64_t seen = __atomic_load_n(&details.seen, __ATOMIC_RELAXED);
  const uint64_t again = seen + (kTargetMask + 1);
  __atomic_store_n(&details.seen, (seen & kTargetMask) == target ? again : target,
                   __ATOMIC_RELAXED);
}

// What hot_code.cc goes by. `target` is an indirect exit's; the exit stands for `weight` of its
// like.
inline void note_exit(Thread& thread, LogWord word, uint64_t target, uint32_t weight) {
  Passage& passage = code_cache.passages()[word.number()];
  const uint32_t before = __atomic_load_n(&passage.hits, __ATOMIC_RELAXED);
  const uint32_t hits = before + weight;
  __atomic_store_n(&passage.hits, hits, __ATOMIC_RELAXED);
  if (word.kind() != Passage::kDirect && hits < kJudgedHits) {
    note_target(code_cache.passage_details()[word.number()], target & kTargetMask);
  }
  // At each power of two.
  if (__builtin_expect((before ^ hits) <= before, 1) || hits < kHotHits) return;
  constexpr uint32_t kRoom = sizeof thread.hot_exits / sizeof thread.hot_exits[0];
  if (thread.hot_exit_count != kRoom) thread.hot_exits[thread.hot_exit_count++] = word.number();
}

// What led to a return or another indirect branch within a superblock, and that.
inline void write_via(pt::PacketWriter& writer, ReturnStack& returns, const Via& via) {
  if (via.packet_bytes != 0) return writer.packets(via.packets, via.packet_bytes, via.target);
  writer.tnt(via.outcomes, via.outcome_count);
  if (via.is_return && returns.pop(via.target)) return writer.tnt(1, 1);
  writer.flush_tnt();
  writer.tip(via.target);
}

uint64_t due_position(const Thread& thread) {
  const auto start =
      reinterpret_cast<uint64_t>(thread.writer.position()) - thread.writer.size_bytes();
  return thread.psb_due_bytes < SIZE_MAX - start ? start + thread.psb_due_bytes : SIZE_MAX;
}
inline bool is_at(const pt::PacketWriter& writer, uint64_t position) {
  return reinterpret_cast<uint64_t>(writer.position()) >= position;
}

// The writer and the stack stay in registers: nothing in the loop but a PSB gets their addresses.
template <bool kLearns>
const LogEntry* write_entries(Thread& thread, const LogEntry* entry, const LogEntry* end,
                              uint32_t weight) {
  pt::PacketWriter writer = thread.writer;
  ReturnStack returns = thread.returns;
  // Whether the writer has come this far says whether a PSB is due.
  uint64_t psb_due = due_position(thread);
  uint64_t traced = 0;
  const auto psb_at = [&](uint64_t ip) {
    thread.writer = writer;
    thread.returns = returns;
    write_psb(thread, ip);
    writer = thread.writer;
    psb_due = due_position(thread);
  };
  while (entry < end) {
    const LogWord word(*entry);
    if (kLearns) note_exit(thread, word, entry[1], weight);
    traced += word.outcome_count();
    if (word.is_plain()) {
      writer.tnt(word.outcomes(), word.outcome_count());
      ++entry;
      continue;
    }
    const uint64_t target = entry[1] & kTargetMask;
    entry += word.units();
    if (word.has_vias()) {
      const Passage& passage = code_cache.passages()[word.number()];
      const Via* via = code_cache.vias() + passage.first_via;
      const Via* const behind = via + passage.via_count;
      do {
        traced += via->outcome_count + 1u;
        write_via(writer, returns, *via);
      } while (++via != behind);
    }
    writer.tnt(word.outcomes(), word.outcome_count());
    if (word.calls() != 0) {
      returns.push(code_cache.passage_details()[word.number()].returns_to, word.calls());
    }
    if (word.kind() == Passage::kDirect) {
      // Its TIPs may be many; outcomes alone can't put a PSB off for long.
      if (word.has_vias() && is_at(writer, psb_due)) {
        psb_at(code_cache.exit(word.number()).target);
      }
      continue;
    }
    ++traced;
    if (word.kind() == Passage::kReturn && returns.pop(target)) {
      writer.tnt(1, 1);
      continue;
    }
    if (word.kind() == Passage::kMiss) returns.clear();
    writer.flush_tnt();
    writer.tip(target);
    if (__builtin_expect(is_at(writer, psb_due), 0)) psb_at(target);
  }
  thread.writer = writer;
  thread.returns = returns;
  thread.window_branches += traced;
  return entry;
}

}  // namespace

uint32_t next_learning_weight(Thread& thread) {
  if (session.config.continuous == 0) return 0;
  const uint32_t before = thread.logs_learned_of++;
  if (before < kLearnsAll) return 1;
  return before % kLearnsEvery == 0 ? kLearnsEvery : 0;
}

void learn(Thread& thread, const LogEntry* entry, const LogEntry* end, uint32_t weight) {
  if (weight == 0) return;
  while (entry < end) {
    const LogWord word(*entry);
    note_exit(thread, word, entry[1], weight);
    entry += word.units();
  }
}

void write_way(pt::PacketWriter& writer, ReturnStack& returns, const Way& way) {
  const Via* const vias = code_cache.vias() + way.first_via;
  for (uint32_t i = 0; i < way.via_count; ++i) write_via(writer, returns, vias[i]);
  writer.tnt(path_outcomes(way.path), path_count(way.path));
}

void learn_exit(Thread& thread, LogWord word, uint64_t target, uint32_t weight) {
  note_exit(thread, word, target, weight);
}

const LogEntry* write_packets(Thread& thread, const LogEntry* entry, const LogEntry* end,
                              uint32_t weight) {
  if (address_filters.active()) {
    write_filtered(thread, entry, end, weight);
    return end;
  }
  if (weight != 0) return write_entries<true>(thread, entry, end, weight);
  return write_entries<false>(thread, entry, end, 0);
}

void start_log(Thread& thread, size_t units) {
  thread.log_start = thread.log_end - units * sizeof(LogEntry);
  tls_block.log = thread.log_start;
}

}  // namespace auxtrail::unit
