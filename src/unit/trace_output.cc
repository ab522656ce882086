// See trace_output.h. Compiled without vector registers.
#include "unit/trace_output.h"

#include "unit/address_filters.h"
#include "unit/clock.h"
#include "unit/code_cache.h"
#include "unit/counting.h"
#include "unit/deferred_log.h"
#include "unit/session.h"
#include "unit/sys.h"
#include "unit/window.h"
#include "unit/window_parts.h"

namespace auxtrail::unit {

using channel::Reason;

namespace {

// Room for a log's packets and for what else may come before the next commit(): a superblock's way
// up to an interruption, a PSB+, TIP.PGE, TIP.PGD.
constexpr size_t kRoomBytes = packet_room(0) +
                              (kMaxStretchUnits + kMaxEntryUnits) * kMaxPackedUnitBytes +
                              4 * pt::PacketWriter::kMaxHeaderBytes;
static_assert(channel::kAuxAheadBytes >= kRoomBytes);
static_assert(channel::kMinContinuousAuxPages * channel::kPageBytes >= 2 * kRoomBytes);

uint64_t address_of(const std::byte* at) { return reinterpret_cast<uint64_t>(at); }

uint8_t* claim(Thread& thread) {
  return reinterpret_cast<uint8_t*>(thread.engine.aux().claim(kRoomBytes));
}

// Full trace: whether the recorder has read enough for the next stretches.
bool has_room(const Thread& thread) {
  const channel::SlotHeader& slot = *thread.slot.header;
  const uint64_t unread = slot.aux_written.load(std::memory_order_relaxed) -
                          slot.aux_read.load(std::memory_order_acquire);
  return unread + 2 * kRoomBytes <= uint64_t{session.config.aux_pages} * channel::kPageBytes;
}

// Gives the recorder some time: a trace with holes is worth less than a slow program.
template <class Condition>
void wait_for(Condition is_met, int tries) {
  const timespec pause{0, 50000};
  for (int i = 0; i < tries && !is_met(); ++i) {
    (void)sys::call(SYS_nanosleep, sys::arg(&pause), 0);
  }
}

// What is written from here on is lost.
void begin_loss(Thread& thread) {
  thread.choked = true;
  thread.slot.header->aux_lost_at.store(thread.engine.aux().written());
}

void wait_for_room(Thread& thread) {
  constexpr int kTries = 400;
  wait_for([&] { return has_room(thread); }, kTries);
  if (!has_room(thread)) begin_loss(thread);
}

bool has_record_room(const Thread& thread, uint64_t bytes) {
  const perf_event_mmap_page& ring = *thread.slot.control;
  const uint64_t tail = __atomic_load_n(&ring.data_tail, __ATOMIC_ACQUIRE);
  return ring.data_head - tail + bytes <= ring.data_size;
}

// Where in the writer's stretch the next PSB is due.
void schedule_psb(Thread& thread) {
  const int64_t due = static_cast<int64_t>(window_config.psb_period_bytes) - thread.since_psb;
  thread.psb_due_bytes = due > 0 ? static_cast<size_t>(due) : 0;
  if (thread.choked) thread.psb_due_bytes = has_room(thread) ? 0 : SIZE_MAX;
}

// The writer starts over where it did: what it has written is lost.
void discard(Thread& thread) {
  auto& lost = thread.slot.header->aux_lost;
  lost.store(lost.load(std::memory_order_relaxed) + thread.writer.size_bytes());
  thread.window_branches = 0;
  thread.writer.continue_in(claim(thread));
}

// If there is room again. True where a loss ends, with an OVF.
bool end_loss(Thread& thread) {
  if (!thread.choked || !has_room(thread)) return false;
  discard(thread);
  thread.choked = false;
  thread.writer.overflow();
  return true;
}

// The PSB that is written next, at the writer's position.
void note_psb(Thread& thread) {
  thread.history_has_psb = true;
  thread.since_psb = -static_cast<int64_t>(thread.writer.size_bytes());
  schedule_psb(thread);
}

// Samples begin with what is traced from here on.
void forget_history(Thread& thread) {
  note_code_change(thread);
  thread.pt.begin_window();
  thread.history_has_psb = false;
  thread.since_psb = static_cast<int64_t>(window_config.psb_period_bytes);
}

}  // namespace

void begin_output(Thread& thread) {
  thread.window_branches = 0;
  // Something ended the trace before it could say so.
  if (thread.packet_en) return cut_trace(thread);
  if (thread.engine.aux().written() != 0) return thread.writer.continue_in(claim(thread));
  // What another thread left in the writer is not ours.
  thread.writer = pt::PacketWriter(claim(thread));
  thread.since_psb = static_cast<int64_t>(window_config.psb_period_bytes);
  schedule_psb(thread);
}

void commit(Thread& thread) {
  publish_counts(thread);
  event::AuxArea& area = thread.engine.aux();
  const size_t bytes = thread.writer.size_bytes();
  if (thread.choked) {
    discard(thread);
    return schedule_psb(thread);
  }
  area.commit(bytes);
  thread.slot.header->aux_written.store(area.written(), std::memory_order_release);
  if (session.config.mode == channel::TraceMode::kFull && !has_room(thread)) wait_for_room(thread);
  thread.since_psb += static_cast<int64_t>(bytes);
  if (code_changed(thread)) forget_history(thread);
  schedule_psb(thread);
  thread.writer.continue_in(claim(thread));
  add(thread.slot.header->counters.branches, thread.window_branches);
  thread.window_branches = 0;
}

void trace_on(Thread& thread, uint64_t pc) {
  thread.returns.clear();
  thread.packet_en = true;
  if (thread.writer.size_bytes() < thread.psb_due_bytes) return thread.writer.tip_pge(pc);
  // What there was of positions is history no more.
  if (!thread.history_has_psb && address_filters.active()) thread.pt.begin_window();
  (void)end_loss(thread);
  note_psb(thread);
  thread.writer.begin(pc, next_tsc(thread, now_ns()));
}

void trace_stop(Thread& thread) {
  thread.packet_en = false;
  if (thread.trace_stopped) return;
  thread.trace_stopped = true;
  thread.writer.trace_stop();
  count(thread, Reason::kTraceStop);
}

bool psb_is_due(const Thread& thread) {
  return thread.packet_en && thread.writer.size_bytes() >= thread.psb_due_bytes;
}

void write_psb(Thread& thread, uint64_t pc) {
  thread.returns.clear();
  thread.writer.flush_tnt();
  if (end_loss(thread)) thread.writer.fup(pc);
  note_psb(thread);
  const uint64_t ns = thread.deferred.now_ns != 0 ? thread.deferred.now_ns : now_ns();
  thread.writer.psb_plus(pc, next_tsc(thread, ns));
}

void write_position(Thread& thread, uint64_t pc) {
  const bool filtered = address_filters.active();
  if (filtered && session.config.mode != channel::TraceMode::kSample) return;
  // Outside of all ranges this may go on for long: each sample has its own position alone.
  if (filtered) thread.pt.begin_window();
  if (end_loss(thread)) thread.writer.fup(pc);
  note_psb(thread);
  thread.writer.position_only(pc, next_tsc(thread, now_ns()));
  commit(thread);
  if (!filtered) return;
  thread.history_has_psb = false;
  thread.since_psb = static_cast<int64_t>(window_config.psb_period_bytes);
  schedule_psb(thread);
}

void wait_for_record_room(Thread& thread, uint32_t sampler) {
  const perf_event_attr& attr = session.config.samplers[sampler].attr;
  if (channel::is_clock(attr)) return;
  // All that a sample may have beside its AUX bytes, and a LOST record.
  constexpr uint64_t kRest = 1024;
  const uint64_t bytes = attr.aux_sample_size + kRest;
  // The recorder looks at the rings every 100 ms at least, and more often once they fill.
  constexpr int kTries = 2000;
  const auto has_room = [&] { return has_record_room(thread, bytes); };
  if (!thread.ring_choked) wait_for(has_room, kTries);
  thread.ring_choked = !has_room();
}

bool code_changed(const Thread& thread) { return thread.code_changes != code_cache.code_changes(); }

void note_code_change(Thread& thread) { thread.code_changes = code_cache.code_changes(); }

bool is_output(const Thread& thread, uint64_t address) {
  const uint64_t bytes = uint64_t{session.config.aux_pages} * channel::kPageBytes;
  if (thread.mirror == nullptr) return address - address_of(thread.slot.aux) < bytes;
  return address - address_of(thread.mirror) < 2 * bytes;
}

void cut_trace(Thread& thread) {
  drop_deferred(thread);
  thread.log_start = tls_block.log;
  thread.packet_en = false;
  thread.writer = pt::PacketWriter(claim(thread));
  if (session.config.mode == channel::TraceMode::kFull) {
    begin_loss(thread);  // up to an OVF and a PSB+
    return schedule_psb(thread);
  }
  forget_history(thread);
  schedule_psb(thread);
}

void begin_history(Thread& thread, uint64_t pc) {
  thread.writer.flush_tnt();
  commit(thread);
  forget_history(thread);
  schedule_psb(thread);
  if (pc != 0) write_psb(thread, pc);
}

}  // namespace auxtrail::unit
