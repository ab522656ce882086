// See continuous.h. Signal safe; compiled without vector registers.
#include "unit/continuous.h"

#include <signal.h>

#include "unit/address_filters.h"
#include "unit/clock.h"
#include "unit/code_cache.h"
#include "unit/context.h"
#include "unit/deferred_log.h"
#include "unit/session.h"
#include "unit/signals.h"
#include "unit/sys.h"
#include "unit/syscall_gate.h"
#include "unit/trace_output.h"
#include "unit/window.h"
#include "unit/window_leave.h"
#include "unit/window_parts.h"

namespace auxtrail::unit {

using channel::Reason;
using Place = TracedRanges::Place;

namespace {

void start_stretch(Thread& thread) { start_log(thread, thread.log_units); }

// The packets of all that is in the log, and in those set aside before it.
void empty_logs(Thread& thread) { thread.deferred.active ? catch_up(thread) : empty_log(thread); }

// Tracing goes on at `pc`, if that is not filtered out.
void switch_on(Thread& thread, uint64_t pc) {
  const auto place = address_filters.active() ? address_filters.at(pc) : Place::kTraced;
  if (place == Place::kTraceStop) trace_stop(thread);
  if (place == Place::kTraced && !thread.trace_stopped) trace_on(thread, pc);
  commit(thread);
}

// An interruption, if anything is being traced.
void switch_off(Thread& thread, uint64_t pc, const Way& way = kEmptyWay) {
  if (!thread.packet_en) return;
  finish_way(thread, way);
  thread.writer.end(pc);
  thread.packet_en = false;
}

// The packets lead to `pc`, or to where the program left what is traced; tracing is off: samples
// with the newest of them.
void write_samples(Thread& thread, uint64_t pc, uint32_t samplers) {
  commit(thread);
  // A sample needs something to decode, if there is no trace that it could have.
  if (!thread.history_has_psb) write_position(thread, pc);
  for (uint32_t left = samplers; left != 0; left &= left - 1) {
    const auto sampler = static_cast<uint32_t>(__builtin_ctz(left));
    wait_for_record_room(thread, sampler);
    write_sample(thread, pc, sampler);
  }
}

// The same of those that are due.
void sample(Thread& thread, uint64_t pc) {
  write_samples(thread, pc, __atomic_exchange_n(&thread.samples_due, 0u, __ATOMIC_RELAXED));
}

// The thread ran natively up to `pc`, so the packets say no more than that.
void sample_position(Thread& thread, uint64_t pc) {
  switch_on(thread, pc);
  switch_off(thread, pc);
  sample(thread, pc);
}

// From a stub, at `pc`, with all that led there in the packets or set aside.
void sample_from_stub(Thread& thread, uint64_t pc) {
  if (has_deferred(thread)) catch_up(thread);
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
  call_on_stack(thread, &request, &sample_and_go_on, thread.stack_top);
  if (tls_block.state != UnitState::kTranslating) return;
  tls_block.state = UnitState::kIdle;
  replay_held_signals(thread, thread.saved_mask);
}

// Where tracing ended just there, the history leads to it already.
void sample_native_position(Thread* thread, uint64_t* pc) {
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

// Whether the packets of the log that is full can wait.
bool can_defer(const Thread& thread) {
  return thread.deferred.active && thread.samples_due == 0 && thread.packet_en;
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

}  // namespace

void note_due_sample(Thread& thread, const Overflow& overflow) {
  thread.samples_due |= 1u << overflow.number;
  thread.due_address = overflow.address;
  thread.due_weight = 0;
}

void continuous_begin(Thread& thread, ucontext_t& context) {
  const auto pc = program_register(context, REG_RIP);
  thread.gate_rsp = 0;
  thread.stepping = false;
  begin_output(thread);
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
    call_on_stack(thread, &context, &sample_in_gate, (thread.gate_rsp - 256) & ~uint64_t{15});
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
    call_on_stack(*thread, &pc, &sample_native_position, thread->stack_top);
    tls_block.state = UnitState::kIdle;
  }
}

void continuous_pause(Thread& thread, uint64_t pc, const Way& way, Reason reason) {
  empty_logs(thread);
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

Reason continuous_refill(Thread& thread, uint64_t pc) {
  if (can_defer(thread)) {
    set_aside(thread);
  } else {
    empty_logs(thread);
    if (psb_is_due(thread)) write_psb(thread, pc);
    commit(thread);
    start_stretch(thread);
  }
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
  empty_logs(thread);
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
