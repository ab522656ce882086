// The newest branches of a sample, and their brstack text.
#include "history/branch_history.h"

#include <fmt/format.h>

#include <algorithm>

namespace auxtrail::history {

void BranchHistory::clear() {
  branches_.clear();
  times_.clear();
  now_ = first_time_ = {};
  dropped_ = 0;
  blocks_.clear();
  errors_.clear();
}

void BranchHistory::on_branches(std::span<const decode::Branch> branches) {
  if (count() == 0) first_time_ = now_;
  if (branches.size() > options_.newest) {
    const size_t surplus = branches.size() - options_.newest;
    dropped_ += surplus;
    branches = branches.subspan(surplus);
  }
  branches_.insert(branches_.end(), branches.begin(), branches.end());
  if (options_.times) times_.resize(branches_.size(), now_);
  if (branches_.size() / 2 > options_.newest) forget_old();
}

// Now and then, not with each branch.
void BranchHistory::forget_old() {
  const size_t surplus = branches_.size() - options_.newest;
  const auto end = static_cast<std::ptrdiff_t>(surplus);
  branches_.erase(branches_.begin(), branches_.begin() + end);
  if (options_.times) times_.erase(times_.begin(), times_.begin() + end);
  dropped_ += surplus;
}

std::span<const pt::Moment> BranchHistory::times() const {
  const std::span<const pt::Moment> all = times_;
  return all.last(std::min(options_.newest, all.size()));
}

std::span<const decode::Branch> BranchHistory::last(size_t count) const {
  const std::span<const decode::Branch> all = branches_;
  return all.last(std::min(count, all.size()));
}

std::string brstack(std::span<const decode::Branch> branches, size_t max_entries,
                    std::span<const uint64_t> cycles) {
  if (!branches.empty() && branches.back().kind == decode::BranchKind::kTraceEnd) {
    branches = branches.first(branches.size() - 1);
  }
  const size_t end = branches.size();
  std::string line;
  for (size_t i = end; i != end - std::min(max_entries, end); --i) {
    const decode::Branch& branch = branches[i - 1];
    if (!line.empty()) line += ' ';
    fmt::format_to(std::back_inserter(line), "{:#x}/{:#x}/-/-/-/{}/ ", branch.from, branch.to,
                   cycles.empty() ? 0 : cycles[i - 1]);
  }
  return line;
}

}  // namespace auxtrail::history
