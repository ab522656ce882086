// See continuous.h. Signal safe; compiled without vector registers.
#include "unit/continuous.h"

#include <signal.h>

#include "unit/address_filters.h"
#include "unit/clock.h"
#include "unit/code_cache.h"
#include "unit/context.h"
#include "unit/session.h"
#include "unit/signals.h"
#include "unit/stack_switch.h"
#include "unit/sys.h"
#include "unit/syscall_gate.h"
#include "unit/window.h"
#include "unit/window_leave.h"
#include "unit/window_parts.h"

namespace auxtrail::unit {

using channel::Reason;
using Place = TracedRanges::Place;

namespace {

// Room for a log's packets and for what else may come before the next commit(): a superblock's way
// up to an interruption, a PSB+, TIP.PGE, TIP.PGD.
constexpr size_t kRoomBytes = packet_room(0) +
                              (kMaxStretchUnits + kMaxEntryUnits) * kMaxPackedUnitBytes +
                              4 * pt::PacketWriter::kMaxHeaderBytes;
static_assert(channel::kAuxAheadBytes >= kRoomBytes);

void start_stretch(Thread& thread) { start_log(thread, window_config.stretch_units); }

// Full trace: whether the recorder has read enough for the next stretches.
bool has_room(const Thread& thread) {
  const channel::SlotHeader& slot = *thread.slot.header;
  const uint64_t unread = slot.aux_written.load(std::memory_order_relaxed) -
                          slot.aux_read.load(std::memory_order_acquire);
  return unread + 2 * kRoomBytes <= uint64_t{session.config.aux_pages} * channel::kPageBytes;
}

// Gives the recorder some time to make room: a trace with holes is worth less than a slow program.
void wait_for_room(Thread& thread) {
  constexpr int kTries = 400;
  const timespec pause{0, 50000};
  for (int i = 0; i < kTries && !has_room(thread); ++i) {
    (void)sys::call(SYS_nanosleep, sys::arg(&pause), 0);
  }
  thread.choked = !has_room(thread);
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
  thread.writer.continue_in(reinterpret_cast<uint8_t*>(thread.engine.aux().claim(kRoomBytes)));
}

// The PSB that is written next, at the writer's position. It ends a loss.
void note_psb(Thread& thread) {
  if (thread.choked && has_room(thread)) {
    discard(thread);
    thread.choked = false;
    thread.slot.header->aux_lost_at.store(thread.engine.aux().written());
  }
  thread.history_has_psb = true;
  thread.since_psb = -static_cast<int64_t>(thread.writer.size_bytes());
  schedule_psb(thread);
}

// Some code is gone that the packets lead through, and other code may come in its place: samples
// begin with what is traced from here on.
void forget_history(Thread& thread) {
  thread.code_changes = code_cache.code_changes();
  thread.pt.begin_window();
  thread.history_has_psb = false;
  thread.since_psb = window_config.psb_period_bytes;
}

// What was written becomes part of the AUX area, and the writer goes on behind it.
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
  if (thread.code_changes != code_cache.code_changes()) forget_history(thread);
  schedule_psb(thread);
  thread.writer.continue_in(reinterpret_cast<uint8_t*>(area.claim(kRoomBytes)));
  add(thread.slot.header->counters.branches, thread.window_branches);
  thread.window_branches = 0;
}

// Tracing goes on at `pc`, if that is not filtered out.
void switch_on(Thread& thread, uint64_t pc) {
  const auto place = address_filters.active() ? address_filters.at(pc) : Place::kTraced;
  if (place == Place::kTraceStop) continuous_trace_stop(thread);
  if (place == Place::kTraced && !thread.trace_stopped) continuous_trace_on(thread, pc);
  commit(thread);
}

// An interruption, if anything is being traced.
void switch_off(Thread& thread, uint64_t pc, const Way& way = kEmptyWay) {
  if (!thread.packet_en) return;
  drain_way(thread, way);
  thread.writer.end(pc);
  thread.packet_en = false;
}

// A sample needs something to decode, if there is no trace that it could have.
void write_position(Thread& thread, uint64_t pc) {
  const bool filtered = address_filters.active();
  if (filtered && session.config.mode != channel::TraceMode::kSample) return;
  // Outside of all ranges this may go on for long: each sample has its own position alone.
  if (filtered) thread.pt.begin_window();
  note_psb(thread);
  thread.writer.position_only(pc, next_tsc(thread, now_ns()));
  commit(thread);
  if (!filtered) return;
  thread.history_has_psb = false;
  thread.since_psb = static_cast<int64_t>(window_config.psb_period_bytes);
  schedule_psb(thread);
}

// The packets lead to `pc`, or to where the program left what is traced; tracing is off: samples
// with the newest of them.
void write_samples(Thread& thread, uint64_t pc, uint32_t samplers) {
  commit(thread);
  if (!thread.history_has_psb) write_position(thread, pc);
  for (uint32_t left = samplers; left != 0; left &= left - 1) {
    write_sample(thread, pc, static_cast<uint32_t>(__builtin_ctz(left)));
  }
}

// The same of those that are due.
void sample(Thread& thread, uint64_t pc) {
  const uint32_t due = thread.samples_due;
  thread.samples_due = 0;
  write_samples(thread, pc, due);
}

// The thread ran natively up to `pc`, so the packets say no more than that.
void sample_position(Thread& thread, uint64_t pc) {
  switch_on(thread, pc);
  switch_off(thread, pc);
  sample(thread, pc);
}

// From a stub, at `pc`, with all that led there in the packets.
void sample_from_stub(Thread& thread, uint64_t pc) {
  switch_off(thread, pc);
  sample(thread, pc);
  switch_on(thread, pc);
}

// Signals for the program that wait for the window to end.
bool signals_wait(Thread& thread) {
  constexpr uint64_t kPollTicks = 50000;
  if (thread.held_signals != 0) return true;
  const uint64_t now = ticks();
  if (now - thread.poll_ticks < kPollTicks) return false;
  thread.poll_ticks = now;
  uint64_t pending = 0;
  (void)sys::call(SYS_rt_sigpending, sys::arg(&pending), sizeof pending);
  return (pending & auxtrail_window_mask & ~thread.saved_mask) != 0;
}

// Whether translated code is at the beginning of one of the program's instructions.
bool is_at_boundary(ucontext_t& context, uint64_t* pc, Way* way) {
  const uint64_t ip = program_register(context, REG_RIP);
  const Block* block = nullptr;
  const InsnMark* mark = nullptr;
  if (!code_cache.locate(ip, &block, &mark)) return false;
  if (ip != reinterpret_cast<uint64_t>(block->code) + mark->code_offset) return false;
  *pc = code_cache.pc_of(*block, *mark);
  *way = code_cache.way_to(*block, *mark);
  return true;
}

struct SampleRequest {
  ucontext_t* context;
  uint64_t pc;
  Way way;
};

// In a handler, on the unit's stack: the sample, then on in the cache, or natively if that can't
// be.
void sample_and_go_on(Thread* thread, SampleRequest* request) {
  ucontext_t& context = *request->context;
  protect_frame(context);
  window_end(*thread, context, request->pc, request->way, Reason::kFull);
  Reason why = Reason::kFull;
  Block* const block = block_to_enter(*thread, request->pc, &why);
  if (block == nullptr) {
    begin_native(*thread);
    return count(*thread, why);
  }
  switch_on(*thread, request->pc);
  start_stretch(*thread);
  enter_cache(*thread, context, *block);
}

void take_sample(Thread& thread, SampleRequest request) {
  auxtrail_call_on_stack(&thread, &request, reinterpret_cast<void*>(&sample_and_go_on),
                         thread.stack_top);
  if (tls_block.state != UnitState::kTranslating) return;
  tls_block.state = UnitState::kIdle;
  replay_held_signals(thread, thread.saved_mask);
}

// Where tracing ended just there, the history leads to it already.
void sample_native_position(Thread* thread, const uint64_t* pc) {
  if (thread->last_pc == *pc) return sample(*thread, *pc);
  sample_position(*thread, *pc);
}

void sample_in_gate(Thread* thread, ucontext_t* context) {
  protect_frame(*context);
  if (call_was_made(*context)) return sample_position(*thread, thread->gate_next);
  uncount_system_call(*thread);  // for the samples to tell
  sample(*thread, gate_position(*thread, *context));
  count_system_call(*thread);
}

}  // namespace

void note_due_sample(Thread& thread, const Overflow& overflow) {
  thread.samples_due |= 1u << overflow.number;
  thread.due_address = overflow.address;
  thread.due_weight = 0;
}

void continuous_begin(Thread& thread, ucontext_t& context) {
  const auto pc = program_register(context, REG_RIP);
  thread.window_branches = 0;
  thread.gate_rsp = 0;
  thread.stepping = false;
  thread.packet_en = false;
  auto* const at = reinterpret_cast<uint8_t*>(thread.engine.aux().claim(kRoomBytes));
  if (thread.engine.aux().written() == 0) {  // what another thread left in the writer is not ours
    thread.writer = pt::PacketWriter(at);
    thread.since_psb = static_cast<int64_t>(window_config.psb_period_bytes);
    schedule_psb(thread);
  } else {
    thread.writer.continue_in(at);
  }
  if (thread.samples_due != 0) sample_position(thread, pc);
  if (thread.trace_stopped) return;
  Reason why = Reason::kFull;
  const Block* const block = can_enter(context, &why) ? block_to_enter(thread, pc, &why) : nullptr;
  if (block == nullptr) return count(thread, why);
  end_native(thread);
  switch_on(thread, pc);
  take_overflow(thread, pc);
  start_stretch(thread);
  enter_cache(thread, context, *block);
}

void continuous_counted_sample(Thread& thread, uint64_t pc, uint32_t samplers) {
  switch_off(thread, pc);
  write_samples(thread, pc, samplers);
  switch_on(thread, pc);
}

void continuous_overflow(Thread& thread, ucontext_t& context, const Overflow& overflow) {
  const bool is_under_way = thread.samples_due != 0;
  const uint32_t bit = 1u << overflow.number;
  if ((thread.samples_due & bit) != 0) return count(thread, Reason::kBusyUnit);
  note_due_sample(thread, overflow);
  if (is_under_way || tls_block.state == UnitState::kTranslating) return;
  if (tls_block.state == UnitState::kSyscall) {
    if (!is_in_gate(context)) return;
    auxtrail_call_on_stack(&thread, &context, reinterpret_cast<void*>(&sample_in_gate),
                           (thread.gate_rsp - 256) & ~uint64_t{15});
    return;
  }
  const uint64_t ip = program_register(context, REG_RIP);
  // unit_exit() or unit_indirect() take it.
  if (!code_cache.in_cache(ip) || code_cache.in_stub(ip)) return;
  SampleRequest request{&context, 0, kEmptyWay};
  if (is_at_boundary(context, &request.pc, &request.way)) return take_sample(thread, request);
  thread.stepping = true;
  context.uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
}

void end_stepping(Thread& thread, ucontext_t& context) {
  thread.stepping = false;
  context.uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
}

void continuous_step(Thread& thread, ucontext_t& context) {
  SampleRequest request{&context, 0, kEmptyWay};
  const bool arrived = is_at_boundary(context, &request.pc, &request.way);
  if (!arrived && !code_cache.in_stub(program_register(context, REG_RIP))) return;
  end_stepping(thread, context);
  if (arrived) take_sample(thread, request);
}

void continuous_fatal_signal(int signal, uint64_t address, const ucontext_t& context) {
  Thread* const thread = tls_block.thread;
  if (session.config.continuous == 0 || session.stopped || session.memory == nullptr) return;
  if (thread == nullptr || tls_block.state != UnitState::kIdle) return;
  for (uint32_t i = 0; i < session.config.sampler_count; ++i) {
    if (session.config.samplers[i].kind != channel::Sampler::kFatalSignal) continue;
    add(thread->slot.header->counters.overflows, 1);
    thread->samples_due = 1u << i;
    thread->due_address = address;
    thread->due_weight = static_cast<uint64_t>(signal);
    tls_block.state = UnitState::kTranslating;
    uint64_t pc = program_register(context, REG_RIP);
    auxtrail_call_on_stack(thread, &pc, reinterpret_cast<void*>(&sample_native_position),
                           thread->stack_top);
    tls_block.state = UnitState::kIdle;
  }
}

void continuous_pause(Thread& thread, uint64_t pc, const Way& way, Reason reason) {
  switch_off(thread, pc, way);
  thread.last_pc = pc;
  if (thread.samples_due != 0) {
    sample(thread, pc);
  } else {
    commit(thread);
  }
  if (reason == Reason::kFull) return;
  begin_native(thread);
  count(thread, reason);
}

void continuous_trace_on(Thread& thread, uint64_t pc) {
  thread.returns.clear();
  thread.packet_en = true;
  if (thread.writer.size_bytes() < thread.psb_due_bytes) return thread.writer.tip_pge(pc);
  // What there was of positions is history no more.
  if (!thread.history_has_psb && address_filters.active()) thread.pt.begin_window();
  note_psb(thread);
  thread.writer.begin(pc, next_tsc(thread, now_ns()));
}

void continuous_trace_stop(Thread& thread) {
  thread.packet_en = false;
  if (thread.trace_stopped) return;
  thread.trace_stopped = true;
  thread.writer.trace_stop();
  count(thread, Reason::kTraceStop);
}

void continuous_psb(Thread& thread, uint64_t pc) {
  thread.returns.clear();
  thread.writer.flush_tnt();
  note_psb(thread);
  thread.writer.psb_plus(pc, next_tsc(thread, now_ns()));
}

// Whether hot code can be improved, it is of no account if it can't.
void improve_hot_code(Thread& thread) {
  if (thread.hot_exit_count == 0 || !code_cache.try_lock()) return;
  thread.holds_lock = true;
  const uint32_t count = thread.hot_exit_count;
  thread.hot_exit_count = 0;  // should a fault end this early, it is not tried again
  for (uint32_t i = 0; i < count; ++i) code_cache.improve(thread.hot_exits[i]);
  thread.holds_lock = false;
  code_cache.unlock();
}

Reason continuous_refill(Thread& thread, uint64_t pc) {
  if (thread.packet_en && thread.writer.size_bytes() >= thread.psb_due_bytes) {
    continuous_psb(thread, pc);
  }
  commit(thread);
  start_stretch(thread);
  improve_hot_code(thread);
  if (thread.samples_due != 0) sample_from_stub(thread, pc);
  if (thread.trace_stopped) return Reason::kFull;  // natively from here on: that was counted
  return signals_wait(thread) ? Reason::kSignal : Reason::kCount;
}

uint64_t continuous_system_call(Thread& thread, uint64_t pc) {
  const auto* const code = reinterpret_cast<const uint8_t*>(pc);
  const bool is_plain = code[0] == 0x0f && code[1] == 0x05;
  // A held signal may be what the call waits for.
  const bool is_held = thread.held_signals != 0;
  if (!is_plain || is_held || !fits_gate(thread)) {
    return end_from_stub(thread, pc, Reason::kSyscall);
  }
  drain_log(thread);
  count_system_call(thread);
  if (thread.packet_en) {
    thread.packet_en = false;
    thread.writer.flush_tnt();
    thread.writer.tip_pgd_no_ip();
  }
  commit(thread);
  start_stretch(thread);
  make_system_call(thread, pc);
  const uint64_t next = thread.gate_next;
  thread.pending_pc = next;
  switch_on(thread, next);
  take_overflow(thread, next);
  if (thread.samples_due != 0) sample_from_stub(thread, next);
  if (session.stopped || thread.held_signals != 0) {
    return end_from_stub(thread, next, Reason::kSignal);
  }
  return continue_at(thread, next, Link::kNone);
}

}  // namespace auxtrail::unit
