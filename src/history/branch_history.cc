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

std::string brstack(std::span<const decode::Branch> branches, size_t max_entries) {
  if (!branches.empty() && branches.back().kind == decode::BranchKind::kTraceEnd) {
    branches = branches.first(branches.size() - 1);
  }
  branches = branches.last(std::min(max_entries, branches.size()));
  std::string line;
  for (auto branch = branches.rbegin(); branch != branches.rend(); ++branch) {
    if (!line.empty()) line += ' ';
    fmt::format_to(std::back_inserter(line), "{:#x}/{:#x}/-/-/-/0/ ", branch->from, branch->to);
  }
  return line;
}

}  // namespace auxtrail::history
