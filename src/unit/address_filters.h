// AddressFilters: where this process is traced, by the address filters of the session's leader.
//
// A filter names a part of a file; where that lies is read from the process's mappings whenever
// these are read (CodeMap::refresh), from the first mapping that shows it. FilterEn in the SDM's
// words is at() == kTraced: with "filter" ranges inside one of them, without any of these
// everywhere. A TraceStop range counts before all others. A range whose file is not mapped (yet)
// matches nothing.
//
// Mappings are read under the translator lock; everything else may be asked by any thread at any
// time. IN-PROCESS CODE: no allocation, no libc; async-signal-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "channel/layout.h"
#include "event/addr_filter.h"

namespace auxtrail::unit {

struct AddressRange {
  uint64_t start = 0;
  uint64_t end = 0;  // start if it is empty

  [[nodiscard]] bool contains(uint64_t pc) const { return pc >= start && pc < end; }
};

// The ranges of one moment.
class TracedRanges {
 public:
  enum class Place : uint8_t { kOutside, kTraced, kTraceStop };
  [[nodiscard]] Place at(uint64_t pc) const {
    Place place = filters_ ? Place::kOutside : Place::kTraced;
    for (uint32_t i = 0; i < count_; ++i) {
      if (!ranges_[i].contains(pc)) continue;
      if (stops_[i]) return Place::kTraceStop;
      place = Place::kTraced;
    }
    return place;
  }
  // The addresses around `pc` that are in the same ranges as it.
  [[nodiscard]] AddressRange around(uint64_t pc) const;

 private:
  friend class AddressFilters;
  AddressRange ranges_[event::kMaxAddrFilters];
  bool stops_[event::kMaxAddrFilters] = {};
  bool filters_ = false;  // whether any of them is a "filter"
  uint32_t count_ = 0;
};

class AddressFilters {
 public:
  // Takes over the filters of the configuration, which must outlive this. They are the same in all
  // of a session: what is known of the mappings stays. False if the unit can't do them.
  bool set(const channel::SessionConfig& config);
  [[nodiscard]] bool active() const { return parsed_.count != 0; }

  // A copy: whoever needs several answers that fit each other takes one.
  [[nodiscard]] TracedRanges ranges() const;
  [[nodiscard]] TracedRanges::Place at(uint64_t pc) const { return ranges().at(pc); }

  // All executable mappings of files, in order of address, between begin and end. `changed` is
  // called with each range that is not where it was.
  void begin_mappings();
  void add_mapping(const char* path, uint64_t start, uint64_t end, uint64_t file_offset);
  void end_mappings(void (*changed)(const AddressRange&, void*), void* closure);

 private:
  event::AddrFilters parsed_;  // its ranges are those of the mappings read so far
  // Two, and which of them counts: nobody has to wait for a writer, which may be under one's feet.
  TracedRanges ranges_[2];
  uint32_t current_ = 0;
};

extern AddressFilters address_filters;

}  // namespace auxtrail::unit
