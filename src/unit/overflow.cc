// See overflow.h.
#include "unit/overflow.h"

#include "unit/code_cache.h"
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

uint64_t begin_on_own_stack(Thread* thread, ucontext_t* context) {
  window_begin(*thread, *context);
  return 1;
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

}  // namespace

void on_overflow(ucontext_t& context, bool deferred) {
  if (session.memory == nullptr || session.stopped) return;
  const auto ip = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]);
  if (tls_block.state != UnitState::kIdle || code_cache.in_cache(ip) ||
      code_cache.map().is_own(ip)) {
    channel::Counters& counters = tls_block.thread != nullptr
                                      ? tls_block.thread->slot.header->counters
                                      : session.header()->process;
    counters.overflows.fetch_add(1, std::memory_order_relaxed);
    count(counters, Reason::kBusyUnit);
    return;
  }
  Thread* thread = current_thread(static_cast<uint32_t>(sys::gettid()));
  if (thread == nullptr) return;
  channel::Counters& counters = thread->slot.header->counters;
  counters.overflows.fetch_add(1, std::memory_order_relaxed);
  if (deferred) counters.deferred.fetch_add(1, std::memory_order_relaxed);
  constexpr greg_t kTrapFlag = 0x100;
  if ((context.uc_mcontext.gregs[REG_EFL] & kTrapFlag) != 0) {
    count(counters, Reason::kSingleStep);
    return;
  }
  if (!handlers_in_place()) {
    count(counters, Reason::kHandlersReplaced);
    return;
  }
  tls_block.state = UnitState::kTranslating;
  const uint64_t done = auxtrail_call_on_stack(
      thread, &context, reinterpret_cast<void*>(&begin_on_own_stack), thread->stack_top);
  if (done == 0) count(counters, Reason::kInvalidated);  // abort_translation()
  if (tls_block.state == UnitState::kTranslating) {
    tls_block.state = UnitState::kIdle;
    replay_held_signals(*thread);
  }
}

}  // namespace auxtrail::unit
