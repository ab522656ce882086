// See counting.h. Signal safe; compiled without vector registers.
#include "unit/counting.h"

#include "unit/branch_log.h"
#include "unit/clock.h"
#include "unit/code_cache.h"
#include "unit/continuous.h"
#include "unit/session.h"
#include "unit/superblock_walk.h"
#include "unit/thread_state.h"
#include "unit/trigger.h"
#include "unit/window.h"

namespace auxtrail::unit {

namespace {

using channel::Sampler;

uint64_t count_of(const Sampler& sampler, const Counts& counts) {
  return sampler.kind == Sampler::kBranches ? counts.branches : counts.insns;
}

uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

void schedule(Counting& counting) {
  counting.due = {Counting::kNever, Counting::kNever};
  for (uint32_t i = 0; i < session.config.sampler_count; ++i) {
    const Sampler& sampler = session.config.samplers[i];
    const Counting::Each& each = counting.each[i];
    if (!is_counted(sampler) || each.period == 0) continue;
    uint64_t& due = sampler.kind == Sampler::kBranches ? counting.due.branches : counting.due.insns;
    due = smaller(due, each.next);
  }
}

bool reaches(const Counts& counts, const Counts& due) {
  return counts.insns >= due.insns || counts.branches >= due.branches;
}

// The period that had given the wanted frequency lately. Measured over no less than half of the
// wanted time: the overflows of one log are found all at once.
void adapt_period(Counting::Each& each, uint64_t count) {
  constexpr uint64_t kMostChange = 64;
  const uint64_t now = thread_cpu_ns();
  const uint64_t ns = now - each.measured_ns;
  if (ns < each.interval_ns / 2) return;
  constexpr uint32_t kFractionBits = 20;
  const uint64_t rate = ((count - each.measured_count) << kFractionBits) / ns;
  const uint64_t wanted = rate * each.interval_ns >> kFractionBits;
  const uint64_t least = each.period / kMostChange + 1;
  const uint64_t most = each.period * kMostChange;
  each.period = wanted < least ? least : smaller(wanted, most);
  each.measured_count = count;
  each.measured_ns = now;
}

// The samplers, by bit, that overflow at the present counts. Their next periods begin.
uint32_t next_periods(Counting& counting) {
  uint32_t overflowed = 0;
  for (uint32_t i = 0; i < session.config.sampler_count; ++i) {
    const Sampler& sampler = session.config.samplers[i];
    Counting::Each& each = counting.each[i];
    if (!is_counted(sampler) || each.period == 0) continue;
    const uint64_t count = count_of(sampler, counting.counts);
    if (count < each.next) continue;
    overflowed |= 1u << i;
    each.elapsed = each.next - each.previous;
    each.previous = each.next;
    if (each.interval_ns != 0) adapt_period(each, count);
    while (each.next <= count) each.next += each.period;
  }
  schedule(counting);
  return overflowed;
}

Counts counts_at(const SuperblockWalk& walk, const Counts& before, uint32_t insns) {
  return {before.insns + insns, before.branches + walk.branches(insns)};
}

// The packets of a way through a superblock on which some sampler overflows.
void write_with_overflows(Thread& thread, SuperblockWalk& walk) {
  Counting& counting = thread.counting;
  const Counts before = counting.counts;
  for (uint32_t insns = 1; insns <= walk.insns(); ++insns) {
    counting.counts = counts_at(walk, before, insns);
    if (!reaches(counting.counts, counting.due)) continue;
    thread.window_branches += walk.write_up_to(insns, thread.writer, thread.returns);
    continuous_counted_sample(thread, walk.pc(insns), next_periods(counting));
  }
  counting.counts = counts_at(walk, before, walk.insns());
  thread.window_branches += walk.write_up_to(walk.insns(), thread.writer, thread.returns);
}

// Counts the log's entries from `entry` on, up to the first that overflows.
const LogEntry* count_entries(Counting& counting, const LogEntry* entry, const LogEntry* end) {
  const PassageDetails* const details = code_cache.passage_details();
  Counts counts = counting.counts;
  while (entry < end) {
    const LogWord word(*entry);
    const PassageDetails& way = details[word.number()];
    const Counts then{counts.insns + way.insns, counts.branches + way.branches};
    if (reaches(then, counting.due)) break;
    counts = then;
    entry += word.units();
  }
  counting.counts = counts;
  return entry;
}

}  // namespace

void start_counting(Thread& thread, uint32_t tid) {
  Counting& counting = thread.counting;
  counting.active = false;
  counting.counts = {};
  counting.left_ns = 0;
  const uint64_t now = thread_cpu_ns();
  for (uint32_t i = 0; i < session.config.sampler_count; ++i) {
    const Sampler& sampler = session.config.samplers[i];
    Counting::Each& each = counting.each[i];
    each = {};
    if (!is_counted(sampler)) continue;
    if (sampler.attr.inherit == 0 && tid != window_config.pid) continue;
    counting.active = true;
    // Until the rate is known, a guess.
    constexpr uint64_t kFirstPeriod = 50000;
    each.period = sampler.attr.freq != 0 ? kFirstPeriod : sampler.attr.sample_period;
    if (sampler.attr.freq != 0) each.interval_ns = window_config.periods[i];
    each.next = each.period;
    each.measured_ns = now;
  }
  schedule(counting);
}

void empty_log(Thread& thread) {
  const auto* entry = reinterpret_cast<const LogEntry*>(thread.log_start);
  const auto* const end = reinterpret_cast<const LogEntry*>(tls_block.log);
  const uint32_t weight = next_learning_weight(thread);
  if (!thread.counting.active) (void)write_packets(thread, entry, end, weight);
  while (thread.counting.active && entry < end) {
    const LogEntry* const overflows = count_entries(thread.counting, entry, end);
    (void)write_packets(thread, entry, overflows, weight);
    entry = overflows;
    if (entry >= end) break;
    const LogWord word(*entry);
    SuperblockWalk walk = SuperblockWalk::to_exit(word.number(), entry[1]);
    write_with_overflows(thread, walk);
    entry += word.units();
  }
  thread.log_start = tls_block.log;
}

void finish_way(Thread& thread, const Way& way) {
  Counting& counting = thread.counting;
  if (counting.active && way.insns != 0) {
    SuperblockWalk walk = SuperblockWalk::on(way);
    const Counts then = counts_at(walk, counting.counts, way.insns);
    if (reaches(then, counting.due)) return write_with_overflows(thread, walk);
    counting.counts = then;
  }
  write_way(thread.writer, thread.returns, way);
}

void count_system_call(Thread& thread) { ++thread.counting.counts.insns; }
void uncount_system_call(Thread& thread) { --thread.counting.counts.insns; }

void take_overflow(Thread& thread, uint64_t pc) {
  Counting& counting = thread.counting;
  if (!counting.active || !reaches(counting.counts, counting.due)) return;
  continuous_counted_sample(thread, pc, next_periods(counting));
}

void begin_native(Thread& thread) {
  Counting& counting = thread.counting;
  if (!counting.active || counting.left_ns != 0) return;
  counting.left_ns = thread_cpu_ns();
  auto& gaps = thread.slot.header->counters.native_gaps;
  gaps.store(gaps.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void end_native(Thread& thread) {
  Counting& counting = thread.counting;
  if (counting.left_ns == 0) return;
  auto& total = thread.slot.header->counters.native_ns;
  const uint64_t ns = thread_cpu_ns() - counting.left_ns;
  total.store(total.load(std::memory_order_relaxed) + ns, std::memory_order_relaxed);
  counting.left_ns = 0;
}

void publish_counts(Thread& thread) {
  if (!thread.counting.active) return;
  channel::Counters& counters = thread.slot.header->counters;
  counters.counted_insns.store(thread.counting.counts.insns, std::memory_order_relaxed);
  counters.counted_branches.store(thread.counting.counts.branches, std::memory_order_relaxed);
}

void set_event_counts(Thread& thread) {
  const channel::SessionConfig& config = session.config;
  for (uint32_t i = 0; i < config.sampler_count; ++i) {
    const Sampler& sampler = config.samplers[i];
    if ((sampler.attr.sample_type & PERF_SAMPLE_READ) == 0) continue;
    const Counting::Each& each = thread.counting.each[i];
    uint64_t count = each.kernel_overflows * window_config.periods[i];
    if (is_counted(sampler)) count = count_of(sampler, thread.counting.counts);
    if (channel::is_clock(sampler.attr)) count = thread_cpu_ns();
    thread.engine.set_count(i, count);
  }
}

uint64_t sampled_period(const Thread& thread, uint32_t sampler) {
  return is_counted(session.config.samplers[sampler]) ? thread.counting.each[sampler].elapsed
                                                      : window_config.periods[sampler];
}

}  // namespace auxtrail::unit
