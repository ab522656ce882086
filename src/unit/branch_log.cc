// See branch_log.h. Signal safe; compiled without vector registers.
#include "unit/branch_log.h"

#include "unit/code_cache.h"
#include "unit/continuous.h"
#include "unit/session.h"
#include "unit/thread_state.h"
#include "unit/tls_offsets.h"

namespace auxtrail::unit {

namespace {

// Where an indirect exit leads, for PassageDetails::seen.
inline void note_target(PassageDetails& details, uint64_t target) {
  const uint64_t seen = __atomic_load_n(&details.seen, __ATOMIC_RELAXED);
  const uint64_t again = seen + (kTargetMask + 1);
  __atomic_store_n(&details.seen, (seen & kTargetMask) == target ? again : target,
                   __ATOMIC_RELAXED);
}

// What hot_code.cc goes by. `target` is an indirect exit's.
inline void note_exit(Thread& thread, uint32_t number, uint64_t target) {
  Passage& passage = code_cache.passages()[number];
  const uint32_t hits = __atomic_load_n(&passage.hits, __ATOMIC_RELAXED) + 1;
  __atomic_store_n(&passage.hits, hits, __ATOMIC_RELAXED);
  if (passage.kind != Passage::kDirect && hits < kJudgedHits) {
    note_target(code_cache.passage_details()[number], target);
  }
  if (__builtin_expect((hits & (hits - 1)) != 0, 1) || hits < kHotHits) return;
  constexpr uint32_t kRoom = sizeof thread.hot_exits / sizeof thread.hot_exits[0];
  if (thread.hot_exit_count != kRoom) thread.hot_exits[thread.hot_exit_count++] = number;
}

// What led to a return or another indirect branch within a superblock, and that.
inline void write_via(pt::PacketWriter& writer, ReturnStack& returns, const Via& via) {
  writer.tnt(via.outcomes, via.outcome_count);
  if (via.is_return && returns.pop(via.target)) return writer.tnt(1, 1);
  writer.flush_tnt();
  writer.tip(via.target);
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
  const Passage* const passages = code_cache.passages();
  const PassageDetails* const details = code_cache.passage_details();
  const Via* const vias = code_cache.vias();
  const bool learns = session.config.continuous != 0;
  size_t psb_due_bytes = thread.psb_due_bytes;
  uint64_t traced = 0;
  const auto write_psb = [&](uint64_t ip) {
    thread.writer = writer;
    continuous_psb(thread, ip);
    writer = thread.writer;
    psb_due_bytes = thread.psb_due_bytes;
  };
  const auto* entry = reinterpret_cast<const LogEntry*>(thread.log_start);
  const auto* end = reinterpret_cast<const LogEntry*>(position);
  while (entry < end) {
    const auto number = static_cast<uint32_t>(*entry);
    const Passage& passage = passages[number];
    const uint64_t target = entry[1] & kTargetMask;
    entry += passage.units;
    if (learns) note_exit(thread, number, target);
    for (uint32_t i = 0; i < passage.via_count; ++i) {
      const Via& via = vias[passage.first_via + i];
      write_via(writer, returns, via);
      traced += via.outcome_count + 1u;
    }
    writer.tnt(passage.outcomes, passage.outcome_count);
    traced += passage.outcome_count;
    if (passage.calls != 0) returns.push(details[number].returns_to, passage.calls);
    if (passage.kind == Passage::kDirect) {
      // Its TIPs may be many; outcomes alone can't put a PSB off for long.
      if (passage.via_count != 0 && writer.size_bytes() >= psb_due_bytes) {
        write_psb(code_cache.exit(number).target);
      }
      continue;
    }
    ++traced;
    if (passage.kind == Passage::kReturn && returns.pop(target)) {
      writer.tnt(1, 1);
      continue;
    }
    if (passage.kind == Passage::kMiss) returns.clear();
    writer.flush_tnt();
    writer.tip(target);
    if (__builtin_expect(writer.size_bytes() >= psb_due_bytes, 0)) write_psb(target);
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
