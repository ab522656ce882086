// See overflow.h.
#include "unit/overflow.h"

#include "unit/code_cache.h"
#include "unit/context.h"
#include "unit/continuous.h"
#include "unit/session.h"
#include "unit/signals.h"
#include "unit/stack_switch.h"
#include "unit/sys.h"
#include "unit/thread_state.h"
#include "unit/window.h"

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
  continuous_begin(*thread, *context, false);
}
void sample_on_own_stack(Thread* thread, ucontext_t* context) {
  protect_frame(*context);
  continuous_begin(*thread, *context, true);
}

void* beginning(bool is_sampler) {
  if (session.config.continuous == 0) return reinterpret_cast<void*>(&begin_on_own_stack);
  return reinterpret_cast<void*>(is_sampler ? &sample_on_own_stack : &enter_on_own_stack);
}

// The calling thread's state; null, with the reason counted, if it can't be sampled.
Thread* current_thread(uint32_t tid) {
  if (tls_block.tid == 0) tls_block.tid = tid;
  if (tls_block.tid != tid) {
    count(session.header()->process, Reason::kForeignThread);
    return nullptr;
  }
  if (tls_block.thread == nullptr) {
    tls_block.thread = claim_thread(tid);
    if (tls_block.thread == nullptr) {
      session.header()->no_slot_overflows.fetch_add(1, std::memory_order_relaxed);
    }
  }
  return tls_block.thread;
}

// Opens a window, or counts why not. The thread, if it has state of its own.
Thread* handle_overflow(ucontext_t& context, bool deferred, bool is_sampler) {
  const uint64_t ip = program_register(context, REG_RIP);
  if (session.config.continuous != 0 && tls_block.thread != nullptr &&
      tls_block.state != UnitState::kIdle &&
      tls_block.tid == static_cast<uint32_t>(sys::gettid())) {
    if (!is_sampler) return tls_block.thread;
    tls_block.thread->slot.header->counters.overflows.fetch_add(1, std::memory_order_relaxed);
    continuous_overflow(*tls_block.thread, context);
    return tls_block.thread;
  }
  if (tls_block.state != UnitState::kIdle || code_cache.in_cache(ip) ||
      code_cache.map().is_own(ip)) {
    channel::Counters& counters = tls_block.thread != nullptr
                                      ? tls_block.thread->slot.header->counters
                                      : session.header()->process;
    counters.overflows.fetch_add(1, std::memory_order_relaxed);
    count(counters, Reason::kBusyUnit);
    return tls_block.thread;
  }
  Thread* thread = current_thread(static_cast<uint32_t>(sys::gettid()));
  if (thread == nullptr) return nullptr;
  channel::Counters& counters = thread->slot.header->counters;
  if (is_sampler) counters.overflows.fetch_add(1, std::memory_order_relaxed);
  if (deferred) counters.deferred.fetch_add(1, std::memory_order_relaxed);
  constexpr uint64_t kTrapFlag = 0x100;
  if ((program_register(context, REG_EFL) & kTrapFlag) != 0) {
    count(counters, Reason::kSingleStep);
    return thread;
  }
  if (!handlers_in_place()) {
    count(counters, Reason::kHandlersReplaced);
    return thread;
  }
  tls_block.state = UnitState::kTranslating;
  auxtrail_call_on_stack(thread, &context, beginning(is_sampler), thread->stack_top);
  if (tls_block.state == UnitState::kTranslating) tls_block.state = UnitState::kIdle;
  return thread;
}

}  // namespace

void on_overflow(ucontext_t& context, bool deferred, bool is_sampler) {
  if (session.memory == nullptr || session.stopped) return;
  tls_block.in_trigger = 1;
  Thread* thread = handle_overflow(context, deferred, is_sampler);
  tls_block.in_trigger = 0;
  if (thread != nullptr && tls_block.state == UnitState::kIdle) {
    replay_held_signals(*thread, signal_mask(context));
  }
}

}  // namespace auxtrail::unit
