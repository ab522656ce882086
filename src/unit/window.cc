// See window.h.
#include "unit/window.h"

#include <signal.h>

#include "unit/clock.h"
#include "unit/context.h"
#include "unit/continuous.h"
#include "unit/rseq.h"
#include "unit/session.h"
#include "unit/signal_set.h"
#include "unit/sys.h"
#include "unit/syscall_gate.h"
#include "unit/window_leave.h"
#include "unit/window_parts.h"

namespace auxtrail::unit {

using channel::Reason;

WindowConfig window_config;

namespace {

constexpr size_t kMinChunkUnits = 32;

constexpr uint64_t kMaxTranslationUs = 30;

// Time goes by TSC ticks; the rate is learnt from the first overflow on.
struct TickRate {
  uint64_t ticks0 = 0;
  uint64_t ns0 = 0;
  uint64_t per_us = 2000;  // until known

  // Threads may call this at once and be preempted between their two clocks: what makes no sense is
  // left out.
  void observe(uint64_t ticks_now, uint64_t ns_now) {
    const uint64_t first_ns = __atomic_load_n(&ns0, __ATOMIC_ACQUIRE);
    if (first_ns == 0) {
      ticks0 = ticks_now;
      __atomic_store_n(&ns0, ns_now, __ATOMIC_RELEASE);
      return;
    }
    if (ns_now <= first_ns || ticks_now <= ticks0) return;
    const uint64_t us = (ns_now - first_ns) / 1000;
    const uint64_t rate_now = us > 500 ? (ticks_now - ticks0) / us : 0;
    if (rate_now != 0) per_us = rate_now;
  }
};
TickRate rate;

// Sets the log up for as many units as surely fit the window's remaining bytes; false if too few
// do.
bool next_chunk(Thread& thread) {
  const size_t used = thread.writer.size_bytes() + packet_room(0);
  if (used >= thread.window_limit_bytes) return false;
  size_t units = (thread.window_limit_bytes - used) * 6 / kMaxUnitBytes6;
  if (units < kMinChunkUnits) return false;
  if (units > kLogUnits) units = kLogUnits;
  start_log(thread, units);
  return true;
}

// A window may take an eighth of the time between overflows; the program must get on. The TSC also
// counts while the thread is preempted, its own clock costs a system call: the first half of the
// limit is measured with the one, the second half with the other.
bool out_of_time(Thread& thread) {
  const uint64_t half_us = window_config.period_ns / 16000 + 10;
  if (ticks() - thread.window_start_ticks <= half_us * rate.per_us) return false;
  const uint64_t cpu_ns = thread_cpu_ns();
  if (thread.window_half_cpu_ns == 0) thread.window_half_cpu_ns = cpu_ns;
  return cpu_ns - thread.window_half_cpu_ns > half_us * 1000;
}

Block* get_block(Thread& thread, uint64_t pc, Reason* why) {
  const uint64_t start = ticks();
  const bool may_translate =
      session.config.continuous != 0 || static_cast<int64_t>(thread.translation_ticks) > 0;
  const uint64_t before = code_cache.blocks_translated();
  Block* block = code_cache.get(pc, may_translate, why);
  const uint64_t made = code_cache.blocks_translated() - before;
  if (made != 0) {
    const uint64_t spent = ticks() - start;
    const uint64_t most =
        kMaxTranslationUs * rate.per_us;  // more than that and the thread was preempted
    thread.translation_ticks -= spent < most ? spent : most;
    auto& total = thread.slot.header->counters.blocks_translated;
    total.store(total.load(std::memory_order_relaxed) + made, std::memory_order_relaxed);
  }
  return block;
}

}  // namespace

uint64_t continue_at(Thread& thread, uint64_t pc, Link link, uint32_t exit_number) {
  if (!code_cache.try_lock()) return end_from_stub(thread, pc, Reason::kCacheBusy);
  thread.holds_lock = true;
  Reason why = Reason::kFull;
  Block* block = get_block(thread, pc, &why);
  if (block != nullptr) {
    if (link == Link::kExit) code_cache.chain(exit_number, *block);
    if (link == Link::kIndirect) code_cache.publish_indirect(*block);
  }
  thread.holds_lock = false;
  code_cache.unlock();
  if (block == nullptr) return end_from_stub(thread, pc, why);
  return reinterpret_cast<uint64_t>(block->code);
}

namespace {

// The log is full, and `pc` comes next: turns it into packets. kCount to go on, else why the window
// ends.
Reason refill(Thread& thread, uint64_t pc) {
  if (session.config.continuous != 0) return continuous_refill(thread, pc);
  empty_log(thread);
  if (!next_chunk(thread)) return Reason::kFull;
  return out_of_time(thread) ? Reason::kTimeBudget : Reason::kCount;
}

uint32_t current_cpu() {
  if (const int32_t known = rseq_cpu(); known >= 0) return static_cast<uint32_t>(known);
  uint32_t cpu = 0;
  (void)sys::call(SYS_getcpu, sys::arg(&cpu));
  return cpu;
}

}  // namespace

void write_sample(Thread& thread, uint64_t pc, uint32_t sampler) {
  channel::Counters& counters = thread.slot.header->counters;
  if (window_config.reads_counts) set_event_counts(thread);
  thread.delivering = true;
  const event::OverflowResult result =
      thread.engine.overflow({.ip = pc,
                              .pid = window_config.pid,
                              .tid = tls_block.tid,
                              .time_ns = now_ns(),
                              .cpu = current_cpu(),
                              .period = sampled_period(thread, sampler),
                              .addr = thread.due_address,
                              .weight = thread.due_weight},
                             sampler);
  thread.delivering = false;
  if (result.outcome == event::Outcome::kWritten) {
    add(counters.samples, 1);
    add(counters.aux_bytes, result.aux_bytes);
  } else {
    add(counters.lost_samples, 1);
  }
}

void count(Thread& thread, Reason reason) {
  add(thread.slot.header->counters.ended_by[static_cast<size_t>(reason)], 1);
}

uint64_t next_tsc(Thread& thread, uint64_t ns) {
  thread.last_tsc = ns > thread.last_tsc ? ns : thread.last_tsc + 1;
  return thread.last_tsc;
}

namespace {

void deliver_sample(Thread& thread, uint64_t pc, Reason reason) {
  thread.engine.aux().commit(thread.writer.size_bytes());
  write_sample(thread, pc, 0);
  channel::Counters& counters = thread.slot.header->counters;
  add(counters.branches, thread.window_branches);
  count(thread, reason);
  add(counters.window_ns, (ticks() - thread.window_start_ticks) * 1000 / rate.per_us);
}

// Packets go straight into the AUX area.
void start_packets(Thread& thread) {
  const uint64_t room = window_config.sample_bytes;
  constexpr uint64_t kLeast = 64;  // position_only()
  const uint64_t claimed = room > kLeast ? room : kLeast;
  std::byte* at = thread.engine.aux().claim(claimed);
  // If the system has no memory for a page the fault comes here, where a window can still be given
  // up.
  for (uint64_t i = 0; i < claimed; i += channel::kPageBytes) {
    *static_cast<volatile std::byte*>(at + i) = std::byte{0};
  }
  thread.pt.begin_window();
  thread.returns.clear();
  thread.writer = pt::PacketWriter(reinterpret_cast<uint8_t*>(at));
}

// Nothing could be traced: packets that state the position and no branch.
void sample_without_history(Thread& thread, uint64_t pc, uint64_t tsc, Reason reason) {
  thread.writer.position_only(pc, tsc);
  deliver_sample(thread, pc, reason);
}

// The translation credit of a thread: a small share of real time, saved up over some periods.
// Between rare overflows there is time for more, but new code costs the program more than its
// translation.
void grant_translation_time(Thread& thread) {
  constexpr uint64_t kMaxGrantUs = 40;
  constexpr uint64_t kSavedGrants = 10;
  const uint64_t share_us = window_config.period_ns / 1000 * 15 / 1000;
  const uint64_t grant_us = (share_us < kMaxGrantUs ? share_us : kMaxGrantUs) + 2;
  const auto cap = static_cast<int64_t>((kSavedGrants * grant_us + 60) * rate.per_us);
  const int64_t credit =
      static_cast<int64_t>(thread.translation_ticks) + static_cast<int64_t>(grant_us * rate.per_us);
  thread.translation_ticks = static_cast<uint64_t>(credit < cap ? credit : cap);
}

}  // namespace

void window_begin(Thread& thread, ucontext_t& context) {
  const auto pc = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]);
  const uint64_t ns = now_ns();
  thread.window_start_ticks = ticks();
  thread.window_half_cpu_ns = 0;
  thread.window_branches = 0;
  rate.observe(thread.window_start_ticks, ns);
  grant_translation_time(thread);
  start_packets(thread);
  const uint64_t tsc = next_tsc(thread, ns);

  Reason why = Reason::kFull;
  const Block* const block = can_enter(context, &why) ? block_to_enter(thread, pc, &why) : nullptr;
  if (block == nullptr) return sample_without_history(thread, pc, tsc, why);

  thread.writer.begin(pc, tsc);
  thread.window_limit_bytes = window_config.sample_bytes;
  if (!next_chunk(thread)) {
    start_packets(thread);
    return sample_without_history(thread, pc, tsc, Reason::kFull);
  }
  enter_cache(thread, context, *block);
}

bool can_enter(const ucontext_t& context, Reason* why) {
  // Alignment checks would hit the unit's own code behind the stubs.
  constexpr uint64_t kAlignmentCheck = 0x40000;
  if ((program_register(context, REG_EFL) & kAlignmentCheck) != 0) {
    *why = Reason::kUntranslatable;
    return false;
  }
  // While a stub worked on the unit's stack, a signal would get its frame at the top of the
  // alternate stack, over the program's own there.
  if (alternate_stack_holds(context, program_register(context, REG_RSP))) {
    *why = Reason::kAlternateStack;
    return false;
  }
  return true;
}

Block* block_to_enter(Thread& thread, uint64_t pc, Reason* why) {
  if (!code_cache.try_lock()) {
    *why = Reason::kCacheBusy;
    return nullptr;
  }
  thread.holds_lock = true;
  Block* block = nullptr;
  if (code_cache.ensure_ready()) {
    block = get_block(thread, pc, why);
  } else {
    *why = Reason::kCacheFull;
  }
  if (block != nullptr && !code_cache.is_fresh(*block)) {
    // Someone changed code behind our back: this stretch stays native from now on.
    code_cache.map().mark_patched(sys::page_down(pc), sys::page_up(pc + 1));
    code_cache.drop(pc, pc + 1);
    block = nullptr;
    *why = Reason::kPatchedCode;
  }
  thread.holds_lock = false;
  code_cache.unlock();
  return block;
}

void enter_cache(Thread& thread, ucontext_t& context, const Block& block) {
  thread.signal_return.adopt(context);
  thread.saved_mask = signal_mask(context);
  signal_mask(context) = auxtrail_window_mask;
  context.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(reinterpret_cast<uint64_t>(block.code));
  tls_block.state = UnitState::kWindow;
}

void window_end(Thread& thread, ucontext_t& context, uint64_t pc, const Way& way, Reason reason) {
  tls_block.state = UnitState::kTranslating;  // for abort_translation()
  signal_mask(context) = thread.saved_mask;
  if (thread.stepping) end_stepping(thread, context);
  context.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(pc);
  // A restartable sequence was announced while its thread ran in the cache, so the kernel no longer
  // guards it: it is aborted, as a preemption at this instruction would have done.
  if (const uint64_t abort = rseq_abort_of(pc); abort != 0) {
    context.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(abort);
  }
  if (session.config.continuous != 0) return continuous_pause(thread, pc, way, reason);
  empty_log(thread);
  write_way(thread.writer, thread.returns, way);
  thread.writer.end(pc);
  deliver_sample(thread, pc, reason);
}

namespace {

uint64_t end_at_exit(Thread& thread, const Exit& exit) {
  const auto reason = static_cast<Reason>(exit.reason);
  const bool traced_on = session.config.continuous != 0 && reason == Reason::kSyscall;
  if (traced_on) return continuous_system_call(thread, exit.target);
  return end_from_stub(thread, exit.target, reason);
}

}  // namespace

uint64_t unit_exit(Thread* thread) {
  const auto token = static_cast<uint32_t>(tls_block.target);
  const uint32_t number = token >> 1;
  const Exit& exit = code_cache.exit(number);
  const uint64_t target = exit.target;
  thread->pending_pc = target;
  if (token != exit_token(number, true)) {
    const LogWord word(number, code_cache.passages()[number]);
    *reinterpret_cast<LogWord*>(tls_block.log) = word;
    tls_block.log += word.units() * sizeof(LogEntry);
  }
  const bool is_end = exit.state == Exit::kEnd;  // never changes, unlike the other states
  const bool is_full = log_is_full(tls_block.log);
  if (is_full || thread->samples_due != 0) {
    const Reason reason = refill(*thread, target);
    if (reason != Reason::kCount && !is_end) return end_from_stub(*thread, target, reason);
    if (is_full && token == exit_token(number, true)) {  // that was all that stopped it
      uint8_t* const next = code_cache.chained(number);
      if (next != nullptr) return reinterpret_cast<uint64_t>(next);
    }
  }
  if (is_end) return end_at_exit(*thread, exit);
  return continue_at(*thread, target, Link::kExit, number);
}

uint64_t unit_indirect(Thread* thread) {
  thread->pending_pc = tls_block.target;
  if (thread->samples_due != 0 || log_is_full(tls_block.log)) {
    const Reason reason = refill(*thread, tls_block.target);
    if (reason != Reason::kCount) return end_from_stub(*thread, tls_block.target, reason);
  }
  return continue_at(*thread, tls_block.target, Link::kIndirect);
}

}  // namespace auxtrail::unit
