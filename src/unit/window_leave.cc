// See window_leave.h.
#include "unit/window_leave.h"

#include "unit/code_cache.h"
#include "unit/counting.h"
#include "unit/session.h"
#include "unit/signals.h"
#include "unit/stack_switch.h"
#include "unit/stub_frame.h"
#include "unit/trace_output.h"
#include "unit/window.h"

namespace auxtrail::unit {

using channel::Reason;

namespace {

uint64_t trap_at(Thread& thread, uint64_t pc, Reason reason) {
  tls_block.exit_pc = pc;
  thread.end_reason = reason;
  return code_cache.exit_trap();
}

// The last step, on the unit's stack: signal_return has all but the extended state.
[[noreturn]] void return_natively(Thread* thread) {
  thread->leaving = false;
  tls_block.state = UnitState::kIdle;
  replay_held_signals(*thread, thread->saved_mask);
  thread->signal_return.go();
}

void count_invalidated(Thread& thread) {
  constexpr auto kIndex = static_cast<size_t>(Reason::kInvalidated);
  thread.slot.header->counters.ended_by[kIndex].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

uint64_t end_from_stub(Thread& thread, uint64_t pc, Reason reason) {
  if (!thread.signal_return.usable() || !thread.signal_return.covers_state_in_use() ||
      session.config.end_by_trap != 0) {
    return trap_at(thread, pc, reason);
  }
  ucontext_t& context = thread.signal_return.context();
  copy_program_registers(thread, context);
  thread.leaving = true;
  window_end(thread, context, pc, kEmptyWay, reason);
  return_natively(&thread);
}

void abort_translation(Thread& thread, ucontext_t& context, uint64_t address) {
  if (thread.holds_lock) {
    thread.holds_lock = false;
    code_cache.unlock();
  }
  if (thread.delivering) {
    thread.delivering = false;
    session.stopped = true;
  }
  if (session.config.continuous != 0 && is_output(thread, address)) cut_trace(thread);
  auto& registers = context.uc_mcontext.gregs;
  if (thread.leaving) {  // in window_end, which end_from_stub called
    count_invalidated(thread);
    begin_native(thread);
    registers[REG_RIP] = reinterpret_cast<greg_t>(&return_natively);
    registers[REG_RDI] = reinterpret_cast<greg_t>(&thread);
    registers[REG_RSP] = static_cast<greg_t>((stub_rsp(thread) & ~uint64_t{15}) - sizeof(uint64_t));
  } else if (tls_block.state == UnitState::kWindow) {
    // In unit_exit or unit_indirect: return the exit trap to the stub.
    registers[REG_RIP] = *reinterpret_cast<greg_t*>(stub_rsp(thread) - sizeof(uint64_t));
    registers[REG_RSP] = static_cast<greg_t>(stub_rsp(thread));
    const uint64_t pc = thread.pending_pc;
    registers[REG_RAX] = static_cast<greg_t>(trap_at(thread, pc, Reason::kInvalidated));
  } else {  // in what a handler called, by call_on_stack()
    count_invalidated(thread);
    if (tls_block.state == UnitState::kTranslating) begin_native(thread);
    registers[REG_RIP] = reinterpret_cast<greg_t>(&auxtrail_call_on_stack_return);
    registers[REG_RSP] = static_cast<greg_t>(thread.handler_stack - 16);
  }
}

}  // namespace auxtrail::unit
