// Going back from PSB to PSB.
#include "history/virtual_lbr.h"

#include <algorithm>

#include "pt/psb_search.h"

namespace auxtrail::history {
namespace {

using decode::ErrorCause;

// Beside what is asked for: the branch that the oldest one's distance is to; and in a decoding that
// begins in the middle the first branch may be none, but the place where it began.
constexpr size_t kBefore = 1;
constexpr size_t kBeginning = 1;

// What a beginning in the middle can cause.
bool may_be_ours(ErrorCause cause) {
  return cause != ErrorCause::kNoMap && cause != ErrorCause::kBadInstruction &&
         cause != ErrorCause::kTruncated;
}

}  // namespace

LbrEntry lbr_entry(const BranchHistory& history, size_t index) {
  LbrEntry entry{history.branches()[index], {}, {}};
  const auto times = history.times();
  if (index == 0 || index >= times.size()) return entry;
  const decode::Branch& before = history.branches()[index - 1];
  const bool is_lost = entry.branch.kind == decode::BranchKind::kTraceBegin && !before.ends_trace;
  if (is_lost) return entry;
  const pt::Moment& from = times[index - 1];
  const pt::Moment& to = times[index];
  if (from.has_tsc && to.has_tsc && to.tsc >= from.tsc) entry.tsc_ticks = to.tsc - from.tsc;
  if (to.cycles != 0) entry.cycles = to.cycles - from.cycles;
  return entry;
}

VirtualLbr::VirtualLbr(decode::BranchDecoder& decoder, const Options& options)
    : decoder_(decoder),
      options_(options),
      history_({.blocks = false,
                .errors = true,
                .times = options.times,
                .newest = options.count + kBefore}) {}

const decode::DecodeSummary& VirtualLbr::read(const image::CodeMap& code,
                                              std::span<const std::byte> trace) {
  size_t before = trace.size();
  for (;;) {
    from_ = pt::find_psb_backward(trace, before).value_or(0);
    // What lies before the first PSB is not decoded by anyone.
    if (from_ != 0 && !pt::find_psb_backward(trace, from_)) from_ = 0;
    history_.clear();
    decoded_ = decoder_.decode(code, trace.subspan(from_), history_);
    if (from_ == 0 || is_enough(decoded_)) return decoded_;
    const size_t bytes = trace.size() - from_;
    before = trace.size() - std::min(trace.size(), 2 * bytes) + 1;
    before = std::min(before, from_);
  }
}

bool VirtualLbr::is_enough(const decode::DecodeSummary& summary) const {
  if (history_.count() < options_.count + kBefore + kBeginning) return false;
  for (size_t cause = 0; cause < decode::kErrorCauseCount; ++cause) {
    if (summary.errors[cause] != 0 && may_be_ours(static_cast<ErrorCause>(cause))) return false;
  }
  return !options_.times || has_times();
}

// Whether a packet told a time before the oldest branch that is kept: decoding everything, that
// branch may have the time of a packet before the PSB.
bool VirtualLbr::has_times() const {
  const auto times = history_.times();
  return times.back() == pt::Moment() || times.front() != history_.first_time();
}

std::vector<LbrEntry> VirtualLbr::entries() const {
  const size_t kept = history_.branches().size();
  std::vector<LbrEntry> entries;
  for (size_t i = kept - std::min(options_.count, kept); i < kept; ++i) {
    entries.push_back(lbr_entry(history_, i));
  }
  return entries;
}

}  // namespace auxtrail::history
