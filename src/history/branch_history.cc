// The newest branches of a sample, and their brstack text.
#include "history/branch_history.h"

#include <fmt/format.h>

#include <algorithm>

namespace auxtrail::history {

void BranchHistory::clear() {
  branches_.clear();
  blocks_.clear();
  errors_.clear();
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
