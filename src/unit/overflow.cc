// See overflow.h.
#include "unit/overflow.h"

#include "unit/code_cache.h"
#include "unit/context.h"
#include "unit/continuous.h"
#include "unit/entry.h"
#include "unit/session.h"
#include "unit/signals.h"
#include "unit/sys.h"
#include "unit/syscall_gate.h"
#include "unit/thread_claim.h"
#include "unit/thread_state.h"
#include "unit/window.h"
#include "unit/window_parts.h"

namespace auxtrail::unit {

__thread TlsBlock tls_block __attribute__((tls_model("initial-exec")));

namespace {

using channel::Reason;

void count(channel::Counters& counters, Reason reason) {
  counters.ended_by[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

void begin_on_own_stack(Thread* thread, ucontext_t* context) {
  protect_frame(*context);
  window_begin(*thread, *context);
}
void enter_on_own_stack(Thread* thread, ucontext_t* context) {
  protect_frame(*context);
  continuous_begin(*thread, *context);
}

// The calling thread's state; null if it can't be sampled, with the reason counted if it was to be.
Thread* current_thread(uint32_t tid, bool wants_sample) {
  if (tls_block.tid == 0) tls_block.tid = tid;
  if (tls_block.tid != tid) {
    if (wants_sample) count(session.header()->process, Reason::kForeignThread);
    return nullptr;
  }
  if (tls_block.thread == nullptr) tls_block.thread = claim_thread(tid);
  if (tls_block.thread == nullptr && wants_sample) {
    session.header()->no_slot_overflows.fetch_add(1, std::memory_order_relaxed);
  }
  return tls_block.thread;
}

// Whether an event that is no clock overflowed because of the unit.
bool is_own_doing(const ucontext_t& context, const Overflow& overflow) {
  if ((window_config.exact_samplers >> overflow.number & 1) == 0) return false;
  if (overflow.deferred) return true;  // while a handler of the unit was at work
  if (tls_block.state == UnitState::kSyscall) return !is_program_call(context);
  if (tls_block.state != UnitState::kWindow) return false;
  const uint64_t ip = program_register(context, REG_RIP);
  return !code_cache.in_cache(ip) || code_cache.in_stub(ip);
}

// Opens a window, or counts why not. The thread, if it has state of its own.
Thread* handle_overflow(ucontext_t& context, const Overflow& overflow) {
  const uint64_t ip = program_register(context, REG_RIP);
  if (session.config.continuous != 0 && tls_block.thread != nullptr &&
      tls_block.state != UnitState::kIdle &&
      tls_block.tid == static_cast<uint32_t>(sys::gettid())) {
    if (!overflow.wants_sample() || is_own_doing(context, overflow)) return tls_block.thread;
    tls_block.thread->slot.header->counters.overflows.fetch_add(1, std::memory_order_relaxed);
    ++tls_block.thread->counting.each[overflow.number].kernel_overflows;
    continuous_overflow(*tls_block.thread, context, overflow);
    return tls_block.thread;
  }
  if (tls_block.state != UnitState::kIdle || code_cache.in_cache(ip) ||
      code_cache.map().is_own(ip)) {
    if (!overflow.wants_sample()) return tls_block.thread;
    channel::Counters& counters = tls_block.thread != nullptr
                                      ? tls_block.thread->slot.header->counters
                                      : session.header()->process;
    counters.overflows.fetch_add(1, std::memory_order_relaxed);
    count(counters, Reason::kBusyUnit);
    return tls_block.thread;
  }
  if (overflow.wants_sample() && is_own_doing(context, overflow)) return nullptr;
  Thread* thread = current_thread(static_cast<uint32_t>(sys::gettid()), overflow.wants_sample());
  if (thread == nullptr) return nullptr;
  channel::Counters& counters = thread->slot.header->counters;
  if (overflow.wants_sample()) {
    counters.overflows.fetch_add(1, std::memory_order_relaxed);
    ++thread->counting.each[overflow.number].kernel_overflows;
  }
  if (overflow.deferred) counters.deferred.fetch_add(1, std::memory_order_relaxed);
  if ((context.uc_mcontext.gregs[REG_EFL] & kTrapFlag) != 0) {
    if (overflow.wants_sample()) count(counters, Reason::kSingleStep);
    return thread;
  }
  if (!handlers_in_place()) {
    if (overflow.wants_sample()) count(counters, Reason::kHandlersReplaced);
    return thread;
  }
  const bool continuous = session.config.continuous != 0;
  if (continuous && overflow.wants_sample()) note_due_sample(*thread, overflow);
  tls_block.state = UnitState::kTranslating;
  call_on_stack(*thread, &context, continuous ? &enter_on_own_stack : &begin_on_own_stack,
                thread->stack_top);
  if (tls_block.state == UnitState::kTranslating) tls_block.state = UnitState::kIdle;
  return thread;
}

}  // namespace

void on_overflow(ucontext_t& context, const Overflow& overflow) {
  if (session.memory == nullptr || session.stopped) return;
  if (!overflow.wants_sample()) return_from_entry(context);
  tls_block.in_trigger = 1;
  Thread* thread = handle_overflow(context, overflow);
  tls_block.in_trigger = 0;
  if (thread == nullptr) return;
  if (tls_block.state == UnitState::kIdle) replay_held_signals(*thread, signal_mask(context));
  // A call that waits goes on, perhaps for long; they arrive in the gate.
  const bool waits =
      tls_block.state == UnitState::kSyscall && is_in_gate(context) && !call_was_made(context);
  if (waits) replay_held_signals(*thread, thread->saved_mask);
}

}  // namespace auxtrail::unit
