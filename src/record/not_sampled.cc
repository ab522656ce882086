#include "record/not_sampled.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "channel/reasons.h"
#include "record/obstacle.h"

namespace auxtrail::record {
namespace {

constexpr size_t kMostNamed = 4;  // of each reason

// Where the file shows no obstacle: the unit was not loaded, or could not reach the recorder.
constexpr char kNeverConnected[] = "never connected (a sandbox or a cleared environment)";

constexpr char kForked[] = "forked past libc's fork()";

std::string reason_of(const Census::Missed& missed) {
  if (missed.declined != channel::Declined::kNo) return std::string(name(missed.declined));
  if (missed.forked) return kForked;
  if (missed.path.empty()) return kNeverConnected;
  const auto obstacle = find_obstacle(missed.path);
  return obstacle && *obstacle ? (*obstacle)->brief : kNeverConnected;
}

using Counts = std::map<std::string, uint64_t>;  // of program starts, by program name

std::string names_text(const Counts& counts) {
  std::vector<std::pair<std::string, uint64_t>> ranked(counts.begin(), counts.end());
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> parts;
  uint64_t others = 0;
  for (const auto& [program, count] : ranked) {
    if (parts.size() == kMostNamed) {
      others += count;
    } else {
      parts.push_back(count == 1 ? program : fmt::format("{} {}", count, program));
    }
  }
  if (others != 0) parts.push_back(fmt::format("{} more", others));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string not_sampled_text(const Census::Coverage& coverage) {
  if (coverage.missed.empty()) return "";
  std::map<std::string, Counts> by_reason;
  for (const auto& [missed, count] : coverage.missed) {
    by_reason[reason_of(missed)][missed.name.empty() ? "unnamed" : missed.name] += count;
  }
  std::vector<std::string> parts;
  for (const auto& [reason, counts] : by_reason) {
    parts.push_back(fmt::format("{}: {}", reason, names_text(counts)));
  }
  if (coverage.missed_count() == coverage.images) {
    return fmt::format("all {} program starts; {}", coverage.images, fmt::join(parts, "; "));
  }
  return fmt::format("{} of {} program starts; {}", coverage.missed_count(), coverage.images,
                     fmt::join(parts, "; "));
}

}  // namespace auxtrail::record
