// From the log to packets where address filters say what is traced. See branch_log.h.
//
// A superblock is traced as a whole or not at all (translator.h), so a way out begins where
// Thread::packet_en says, and its target tells what comes next. As hardware does it (SDM vol. 3,
// "Filtering by IP"): a branch to where nothing is traced is a TIP.PGD with its target, instead of
// what it would have been; the first instruction back inside is a TIP.PGE. Where the program runs
// out of a range without a branch, decoders find no branch that the TIP.PGD could be of: it gets a
// FUP, as an interruption has it. Nothing is written of what lies outside.
// Signal safe; compiled without vector registers.
#include "unit/address_filters.h"
#include "unit/branch_log.h"
#include "unit/code_cache.h"
#include "unit/thread_state.h"
#include "unit/trace_output.h"

namespace auxtrail::unit {

namespace {

using Place = TracedRanges::Place;

struct WayOut {
  const Passage& passage;
  const PassageDetails& details;
  uint64_t target;

  [[nodiscard]] bool is_direct() const { return passage.kind == Passage::kDirect; }
  [[nodiscard]] Path path() const {
    return uint32_t{1} << passage.outcome_count | passage.outcomes;
  }
};

// What leads through the superblock, and how many branches that is.
uint64_t write_inside(Thread& thread, const WayOut& out, Path path) {
  const Passage& passage = out.passage;
  write_way(thread.writer, thread.returns,
            {passage.first_via, passage.via_count, path, nullptr, out.details.insns});
  uint64_t branches = path_count(path);
  const Via* const vias = code_cache.vias() + passage.first_via;
  for (uint32_t i = 0; i < passage.via_count; ++i) branches += vias[i].outcome_count + 1u;
  return branches;
}

// To another superblock that is traced, too: as branch_log.cc has it.
void write_transfer(Thread& thread, const WayOut& out) {
  thread.window_branches += write_inside(thread, out, out.path());
  if (out.passage.calls != 0) thread.returns.push(out.details.returns_to, out.passage.calls);
  if (out.is_direct()) {
    if (out.passage.via_count == 0) return;
  } else {
    ++thread.window_branches;
    if (out.passage.kind == Passage::kReturn && thread.returns.pop(out.target)) {
      return thread.writer.tnt(1, 1);
    }
    if (out.passage.kind == Passage::kMiss) thread.returns.clear();
    thread.writer.flush_tnt();
    thread.writer.tip(out.target);
  }
  if (thread.writer.size_bytes() >= thread.psb_due_bytes) write_psb(thread, out.target);
}

void write_departure(Thread& thread, const WayOut& out) {
  const bool is_taken = out.is_direct() && out.details.by == PassageDetails::kConditional;
  const Path path = out.path();
  thread.window_branches += write_inside(thread, out, is_taken ? path >> 1 : path);
  thread.packet_en = false;
  if (out.is_direct() && out.details.by == PassageDetails::kSequence) {
    return thread.writer.end(out.target);
  }
  const bool is_jump = out.is_direct() && out.details.by == PassageDetails::kBranch;
  if (!is_jump) ++thread.window_branches;  // as for the others: those that need a packet
  thread.writer.flush_tnt();
  thread.writer.tip_pgd(out.target);
}

}  // namespace

void write_filtered(Thread& thread, const LogEntry* entry, const LogEntry* end, uint32_t weight) {
  const TracedRanges ranges = address_filters.ranges();
  while (entry < end) {
    const LogWord word(*entry);
    const uint64_t logged_target = entry[1] & kTargetMask;
    entry += word.units();
    if (weight != 0) learn_exit(thread, word, logged_target, weight);
    if (thread.trace_stopped) continue;
    const bool is_direct = word.kind() == Passage::kDirect;
    const uint64_t target = is_direct ? code_cache.exit(word.number()).target : logged_target;
    const Place place = ranges.at(target);
    if (thread.packet_en) {
      const WayOut out{code_cache.passages()[word.number()],
                       code_cache.passage_details()[word.number()], target};
      place == Place::kTraced ? write_transfer(thread, out) : write_departure(thread, out);
    } else if (place == Place::kTraced) {
      trace_on(thread, target);
    }
    if (place == Place::kTraceStop) trace_stop(thread);
  }
}

}  // namespace auxtrail::unit
