// See branch_log.h. Signal safe; compiled without vector registers.
#include "unit/branch_log.h"

#include "unit/code_cache.h"
#include "unit/continuous.h"
#include "unit/thread_state.h"
#include "unit/tls_offsets.h"
#include "unit/window.h"

namespace auxtrail::unit {

namespace {

void note_hot_exit(Thread& thread, uint32_t number, uint32_t hits) {
  constexpr uint32_t kRoom = sizeof thread.hot_exits / sizeof thread.hot_exits[0];
  if (hits < kHotHits || thread.hot_exit_count == kRoom) return;
  thread.hot_exits[thread.hot_exit_count++] = number;
}

// What led to a return or another indirect branch within a superblock, and that.
inline void write_via(pt::PacketWriter& writer, ReturnStack& returns, const Via& via) {
  writer.tnt(via.outcomes, via.outcome_count);
  if (via.is_return && returns.pop(via.target)) return writer.tnt(1, 1);
  writer.flush_tnt();
  writer.tip(via.target);
}

// Where an indirect exit leads, for PassageDetails::seen.
inline void note_target(PassageDetails& details, uint64_t target) {
  const uint64_t seen = __atomic_load_n(&details.seen, __ATOMIC_RELAXED);
  const uint64_t again = seen + (kTargetMask + 1);
  __atomic_store_n(&details.seen, (seen & kTargetMask) == target ? again : target,
                   __ATOMIC_RELAXED);
}

}  // namespace

void write_way(pt::PacketWriter& writer, ReturnStack& returns, const Way& way) {
  const Via* const vias = code_cache.vias() + way.first_via;
  for (uint32_t i = 0; i < way.via_count; ++i) write_via(writer, returns, vias[i]);
  writer.tnt(path_outcomes(way.path), path_count(way.path));
}

// The writer stays in registers: nothing in the loop but a PSB gets its address.
void drain(Thread& thread, uint64_t position) {
  pt::PacketWriter writer = thread.writer;
  ReturnStack& returns = thread.returns;
  Passage* const passages = code_cache.passages();
  PassageDetails* const details = code_cache.passage_details();
  const Via* const vias = code_cache.vias();
  size_t psb_due_bytes = thread.psb_due_bytes;
  uint64_t traced = 0;
  const auto* entry = reinterpret_cast<const LogEntry*>(thread.log_start);
  const auto* end = reinterpret_cast<const LogEntry*>(position);
  while (entry < end) {
    const auto number = static_cast<uint32_t>(*entry);
    Passage& passage = passages[number];
    const uint32_t hits = __atomic_load_n(&passage.hits, __ATOMIC_RELAXED) + 1;
    __atomic_store_n(&passage.hits, hits, __ATOMIC_RELAXED);
    if (__builtin_expect((hits & (hits - 1)) == 0, 0)) note_hot_exit(thread, number, hits);
    for (uint32_t i = 0; i < passage.via_count; ++i) {
      const Via& via = vias[passage.first_via + i];
      write_via(writer, returns, via);
      traced += via.outcome_count + 1u;
    }
    writer.tnt(passage.outcomes, passage.outcome_count);
    traced += passage.outcome_count;
    if (passage.calls != 0) returns.push(details[number].returns_to, passage.calls);
    const uint64_t target = entry[1] & kTargetMask;
    entry += passage.units;
    if (passage.kind == Passage::kDirect) continue;
    ++traced;
    if (hits < kJudgedHits) note_target(details[number], target);
    if (passage.kind == Passage::kReturn) {
      if (returns.pop(target)) {
        writer.tnt(1, 1);
        continue;
      }
    } else if (passage.kind == Passage::kMiss) {
      returns.clear();
    }
    writer.flush_tnt();
    writer.tip(target);
    if (__builtin_expect(writer.size_bytes() >= psb_due_bytes, 0)) {
      thread.writer = writer;
      continuous_psb(thread, target);
      writer = thread.writer;
      psb_due_bytes = thread.psb_due_bytes;
    }
  }
  thread.writer = writer;
  thread.window_branches += traced;
  thread.log_start = position;
}

void start_log(Thread& thread, size_t units) {
  thread.log_start = thread.log_end - units * sizeof(LogEntry);
  tls_block.log = thread.log_start;
}

}  // namespace auxtrail::unit
