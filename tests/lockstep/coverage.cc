// See coverage.h.
#include "coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace auxtrail::lockstep {
namespace {

// A kind with at least this share of the executed instructions must have started kMinStarts
// windows. Not more: a program may execute a kind in one short phase only.
constexpr double kFairShare = 0.005;
constexpr uint64_t kMinStarts = 2;
constexpr uint64_t kEnoughWindows = 200;

}  // namespace

void Coverage::executed(const Instruction& instruction) {
  ++mnemonics_[instruction.mnemonic].executed;
  ++categories_[instruction.category].executed;
  ++executed_;
}

void Coverage::started(const Instruction& instruction) {
  ++mnemonics_[instruction.mnemonic].started;
  ++categories_[instruction.category].started;
  ++started_;
}

bool Coverage::is_rare(const Instruction& instruction) const {
  const uint64_t mean = started_ / (mnemonics_started() + 1);
  return mnemonics_[instruction.mnemonic].started <= mean / 3;
}

bool Coverage::lacks(const Counts& counts) const {
  const double share = static_cast<double>(counts.executed) / static_cast<double>(executed_);
  return share >= kFairShare && counts.started < kMinStarts;
}

bool Coverage::is_wanted(const Instruction& instruction) const {
  return lacks(categories_[instruction.category]);
}

bool Coverage::wants_any() const {
  return std::any_of(categories_.begin(), categories_.end(),
                     [this](const Counts& counts) { return lacks(counts); });
}

std::string Coverage::missing() const {
  std::string text;
  if (started_ < kEnoughWindows) return text;
  for (size_t i = 0; i < categories_.size(); ++i) {
    if (!lacks(categories_[i])) continue;
    text += fmt::format("{}{} ({} of {} instructions, {} windows)", text.empty() ? "" : ", ",
                        ZydisCategoryGetString(static_cast<ZydisInstructionCategory>(i)),
                        categories_[i].executed, executed_, categories_[i].started);
  }
  return text;
}

std::string Coverage::kinds() const {
  std::vector<size_t> order;
  for (size_t i = 0; i < categories_.size(); ++i) {
    if (categories_[i].executed + categories_[i].started != 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [this](size_t left, size_t right) {
    return categories_[left].executed > categories_[right].executed;
  });
  std::string text;
  for (const size_t i : order) {
    text += fmt::format("{}{} {:.1f}%:{}", text.empty() ? "" : ", ",
                        ZydisCategoryGetString(static_cast<ZydisInstructionCategory>(i)),
                        100.0 * static_cast<double>(categories_[i].executed) /
                            static_cast<double>(std::max<uint64_t>(executed_, 1)),
                        categories_[i].started);
  }
  return text;
}

size_t Coverage::mnemonics_executed() const {
  return static_cast<size_t>(
      std::count_if(mnemonics_.begin(), mnemonics_.end(),
                    [](const Counts& counts) { return counts.executed != 0; }));
}

size_t Coverage::mnemonics_started() const {
  return static_cast<size_t>(
      std::count_if(mnemonics_.begin(), mnemonics_.end(),
                    [](const Counts& counts) { return counts.started != 0; }));
}

}  // namespace auxtrail::lockstep
