// VirtualLbr: the newest branches before the end of a trace, any number of them, without decoding
// the rest.
//
// Hardware's LBR gives the last 32 branches; the end of a trace gives as many as are asked for.
// Decoding can begin at every PSB, so it begins at the last one, and goes further back, each time
// to twice the bytes, only while there are too few branches or decoding from there fails in a way
// that a beginning in the middle can cause (a compressed return whose call lies before; bytes of a
// payload that look like a PSB).
//
//   VirtualLbr lbr(*decoder, {.count = 32, .times = true});
//   lbr.read(code, sample.aux);
//   for (const LbrEntry& entry : lbr.entries()) ...   // oldest first
//
// The branches are those that decoding everything and taking the newest would give, for every trace
// that decodes without such failures: a processor's compressed returns never reach behind a PSB
// (Intel SDM vol. 3, "Intel Processor Trace", PSB and RET compression), and a return that does is
// looked up further back. Cycles are the same, too; TSC times may differ by what CYC packets refine
// them before the clock has calibrated itself anew.
//
// Thread safety: none; one decoder may serve several of them in one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decode/branch_decoder.h"
#include "history/branch_history.h"

namespace auxtrail::history {

// A branch, and how long after the one before it was. That is exact for the first branch that a
// packet decides; others that the same TNT packet decides come after it in no time.
struct LbrEntry {
  decode::Branch branch;
  // Unset: the trace does not tell, or there is no branch before it, or packets were lost.
  std::optional<uint64_t> tsc_ticks;
  std::optional<uint64_t> cycles;  // of the core, as CYC packets tell
};

// The distance of branch `index` from the one before it.
LbrEntry lbr_entry(const BranchHistory& history, size_t index);

class VirtualLbr {
 public:
  struct Options {
    size_t count = 32;
    bool times = false;  // slower
  };

  VirtualLbr(decode::BranchDecoder& decoder, const Options& options);

  // Reads the end of `trace`, against `code`. The counters are of what was decoded last: everything
  // if decoded_from() is 0.
  const decode::DecodeSummary& read(const image::CodeMap& code, std::span<const std::byte> trace);

  // As if nothing was ever read.
  void clear() { history_.clear(); }
  // Of the newest read, until the next; oldest first, with the markers of trace begin and end. One
  // more than asked for if there is one: the oldest one's distance is to it. Offsets of errors are
  // counted from decoded_from().
  [[nodiscard]] const BranchHistory& history() const { return history_; }
  // The newest ones, as many as were asked for.
  [[nodiscard]] std::span<const decode::Branch> branches() const {
    return history_.last(options_.count);
  }
  [[nodiscard]] std::vector<LbrEntry> entries() const;
  // The offset at which decoding began.
  [[nodiscard]] size_t decoded_from() const { return from_; }

 private:
  [[nodiscard]] bool is_enough(const decode::DecodeSummary& summary) const;
  [[nodiscard]] bool has_times() const;

  decode::BranchDecoder& decoder_;
  Options options_;
  BranchHistory history_;
  decode::DecodeSummary decoded_;
  size_t from_ = 0;
};

}  // namespace auxtrail::history
