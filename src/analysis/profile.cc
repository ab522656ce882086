// Summing samples and histories into rows.
#include "analysis/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace auxtrail::analysis {
namespace {

struct SortKeyName {
  std::string_view name;
  SortKey key;
};
constexpr SortKeyName kSortKeyNames[] = {
    {"sym", SortKey::kSymbol}, {"symbol", SortKey::kSymbol}, {"dso", SortKey::kDso},
    {"line", SortKey::kLine},  {"srcline", SortKey::kLine},  {"comm", SortKey::kComm},
    {"pid", SortKey::kPid},    {"tid", SortKey::kTid},
};

bool contains(const std::vector<SortKey>& keys, SortKey key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

Result<std::vector<SortKey>> parse_sort_keys(std::string_view text) {
  std::vector<SortKey> keys;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view name = text.substr(0, comma);
    const auto* found =
        std::find_if(std::begin(kSortKeyNames), std::end(kSortKeyNames),
                     [name](const SortKeyName& known) { return known.name == name; });
    if (found == std::end(kSortKeyNames)) {
      return fail({"choose the sort keys", "", fmt::format("'{}' is no sort key", name),
                   "use some of sym, dso, line, comm, pid, tid"});
    }
    if (!contains(keys, found->key)) keys.push_back(found->key);
    if (comma == std::string_view::npos) return keys;
    text.remove_prefix(comma + 1);
  }
}

std::string_view column_title(SortKey key) {
  constexpr std::array<std::string_view, static_cast<size_t>(SortKey::kCount)> kTitles = {
      "Symbol", "Shared Object", "Source:Line", "Command", "Pid", "Tid"};
  return kTitles[static_cast<size_t>(key)];
}

ProfileCounts& ProfileCounts::operator+=(const ProfileCounts& other) {
  weight += other.weight;
  samples += other.samples;
  branches += other.branches;
  instructions += other.instructions;
  return *this;
}

Profile::Profile(Recording& recording, std::vector<SortKey> keys)
    : recording_(recording),
      keys_(std::move(keys)),
      places_(recording.symbolizer(), {.dso = contains(keys_, SortKey::kDso),
                                       .function = contains(keys_, SortKey::kSymbol),
                                       .line = contains(keys_, SortKey::kLine)}) {
  trace_event_.name = "instructions:u";
}

bool Profile::has(SortKey key) const { return contains(keys_, key); }

Profile::Owner Profile::owner_of(const perfdata::Event& event, uint32_t pid, uint32_t tid,
                                 uint64_t time_ns) const {
  Owner owner;
  owner.event = &event;
  if (has(SortKey::kComm)) owner.comm = recording_.comm(pid, tid, time_ns);
  if (has(SortKey::kPid)) owner.pid = pid;
  if (has(SortKey::kTid)) owner.tid = tid;
  return owner;
}

// A thread's name changes when its code does: by exec.
Profile::OwnerCounts& Profile::trace_owner(const TracePosition& position) {
  if (last_owner_ == nullptr || last_tid_ != position.tid || last_layout_ != position.code.id) {
    last_owner_ = &owners_[owner_of(trace_event_, static_cast<uint32_t>(position.pid),
                                    static_cast<uint32_t>(position.tid), position.time_ns)];
    last_tid_ = position.tid;
    last_layout_ = position.code.id;
  }
  return *last_owner_;
}

void Profile::on_branch(const TracePosition& position, const decode::Branch& branch) {
  if (branch.is_marker()) return;
  trace_owner(position).by_place[places_.at(position.code, branch.from)].branches += 1;
}

void Profile::on_block(const TracePosition& position, const decode::Block& block) {
  ProfileCounts& counts = trace_owner(position).by_place[places_.at(position.code, block.first_ip)];
  counts.instructions += block.instructions;
  counts.weight += block.instructions;
}

ProfileCounts& Profile::touch(uint32_t place) {
  if (place >= scratch_.size()) {
    scratch_.resize(places_.size());
    is_touched_.resize(places_.size());
  }
  if (is_touched_[place] == 0) {
    is_touched_[place] = 1;
    touched_.push_back(place);
  }
  return scratch_[place];
}

void Profile::add(const WalkedSample& walked) {
  ProfileCounts& own = touch(places_.at(walked.ip_code, walked.overflow_ip));
  own.weight += walked.period;
  own.samples += 1;
  for (const decode::Branch& branch : walked.history.branches().subspan(walked.seen.branches)) {
    if (!branch.is_marker()) touch(places_.at(walked.code, branch.from)).branches += 1;
  }
  for (const decode::Block& block : walked.history.blocks().subspan(walked.seen.blocks)) {
    touch(places_.at(walked.code, block.first_ip)).instructions += block.instructions;
  }
  OwnerCounts& owner =
      owners_[owner_of(walked.event, walked.sample.id.pid, walked.sample.id.tid, walked.time_ns)];
  if (walked.has_history()) ++owner.samples_with_history;
  for (const uint32_t place : touched_) {
    owner.by_place[place] += scratch_[place];
    scratch_[place] = {};
    is_touched_[place] = 0;
  }
  touched_.clear();
}

std::vector<std::string> Profile::key_texts(const Owner& owner, const Place& place) const {
  std::vector<std::string> texts;
  for (const SortKey key : keys_) {
    switch (key) {
      case SortKey::kSymbol:
        texts.emplace_back(place.function_name());
        break;
      case SortKey::kDso:
        texts.emplace_back(place.dso_name());
        break;
      case SortKey::kLine:
        texts.emplace_back(place.line.empty() ? image::kUnknown : std::string_view(place.line));
        break;
      case SortKey::kComm:
        texts.push_back(owner.comm);
        break;
      case SortKey::kPid:
        texts.push_back(std::to_string(static_cast<int32_t>(owner.pid)));
        break;
      case SortKey::kTid:
        texts.push_back(std::to_string(static_cast<int32_t>(owner.tid)));
        break;
      case SortKey::kCount:
        break;
    }
  }
  return texts;
}

std::vector<EventProfile> Profile::events() const {
  std::vector<EventProfile> profiles;
  for (const auto& [owner, counts] : owners_) {  // sorted by event: its place in the file's array
    if (profiles.empty() || profiles.back().event != owner.event) {
      profiles.emplace_back().event = owner.event;
      profiles.back().full_trace = owner.event == &trace_event_;
    }
    EventProfile& profile = profiles.back();
    profile.samples_with_history += counts.samples_with_history;
    for (const auto& [place, place_counts] : counts.by_place) {
      profile.total += place_counts;
      profile.rows.push_back({key_texts(owner, places_[place]), place_counts});
    }
  }
  for (EventProfile& profile : profiles) {
    std::sort(profile.rows.begin(), profile.rows.end(),
              [](const ProfileRow& a, const ProfileRow& b) {
                return std::tie(b.counts.weight, b.counts.branches, b.counts.instructions, a.keys) <
                       std::tie(a.counts.weight, a.counts.branches, a.counts.instructions, b.keys);
              });
  }
  return profiles;
}

}  // namespace auxtrail::analysis
