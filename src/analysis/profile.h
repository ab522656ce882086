// Profile: where the samples lie and what the histories before them ran through, by function, file,
// line, thread.
//
// A row counts two things that complement each other: `weight` and `samples` say where the program
// was when the event overflowed (as perf report does); `branches` and `instructions` say what it
// executed in the windows of history that led up to the samples. A branch counts where it came
// from, an instruction where its block begins; what two samples of a thread both hold counts once,
// if the walk finds overlaps.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/places.h"
#include "analysis/sample_walk.h"
#include "base/result.h"

namespace auxtrail::analysis {

enum class SortKey : uint8_t { kSymbol, kDso, kLine, kComm, kPid, kTid, kCount };

// perf's names: "sym" or "symbol", "dso", "line" or "srcline", "comm", "pid", "tid"; joined by
// commas.
Result<std::vector<SortKey>> parse_sort_keys(std::string_view text);
// The head of the key's column, as in perf: "Symbol", "Shared Object" ...
std::string_view column_title(SortKey key);

struct ProfileCounts {
  uint64_t weight = 0;  // the sum of the samples' periods
  uint64_t samples = 0;
  uint64_t branches = 0;      // taken, in histories
  uint64_t instructions = 0;  // executed in histories

  ProfileCounts& operator+=(const ProfileCounts& other);
};

struct ProfileRow {
  std::vector<std::string> keys;  // one text per sort key
  ProfileCounts counts;
};

// One event's part of the profile. Full trace is an event of its own: every executed instruction
// counts, with the weight 1, and every branch.
struct EventProfile {
  const perfdata::Event* event = nullptr;
  bool full_trace = false;
  ProfileCounts total;
  uint64_t samples_with_history = 0;
  std::vector<ProfileRow> rows;  // by weight, then branches, heaviest first
};

// Not thread-safe. `recording` must outlive it. The walk that feeds it needs blocks; it is its
// visitor of full trace.
class Profile : public TraceVisitor {
 public:
  Profile(Recording& recording, std::vector<SortKey> keys);

  void add(const WalkedSample& walked);
  void on_branch(const TracePosition& position, const decode::Branch& branch) override;
  void on_block(const TracePosition& position, const decode::Block& block) override;

  // One per event that had samples, in the file's order of events.
  [[nodiscard]] std::vector<EventProfile> events() const;
  [[nodiscard]] const std::vector<SortKey>& keys() const { return keys_; }

 private:
  // What of a sample tells rows apart beside the place; parts that are no sort key stay empty.
  struct Owner {
    const perfdata::Event* event = nullptr;
    std::string comm;
    uint32_t pid = 0;
    uint32_t tid = 0;
    auto operator<=>(const Owner&) const = default;
  };
  struct OwnerCounts {
    uint64_t samples_with_history = 0;
    std::unordered_map<uint32_t, ProfileCounts> by_place;
  };

  [[nodiscard]] bool has(SortKey key) const;
  Owner owner_of(const perfdata::Event& event, uint32_t pid, uint32_t tid, uint64_t time_ns) const;
  OwnerCounts& trace_owner(const TracePosition& position);
  ProfileCounts& touch(uint32_t place);
  [[nodiscard]] std::vector<std::string> key_texts(const Owner& owner, const Place& place) const;

  Recording& recording_;
  perfdata::Event trace_event_;
  std::vector<SortKey> keys_;
  Places places_;
  std::map<Owner, OwnerCounts> owners_;
  // Whose the last piece of full trace was: mostly it is the next one's too.
  OwnerCounts* last_owner_ = nullptr;
  int32_t last_tid_ = -1;
  uint64_t last_layout_ = 0;
  // One sample's counts by place, and which of them are not zero.
  std::vector<ProfileCounts> scratch_;
  std::vector<uint8_t> is_touched_;
  std::vector<uint32_t> touched_;
};

}  // namespace auxtrail::analysis
