// UnitTotals: the sums of the trace units' counters, and what happened to the records on their way.
//
// The counters of channel::Counters come from memory that the traced program can overwrite, so sums
// saturate instead of wrapping; what the recorder itself counted stands apart in RecordTotals.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "channel/layout.h"

namespace auxtrail::record {

inline void add_saturating(uint64_t& sum, uint64_t value) {
  if (__builtin_add_overflow(sum, value, &sum)) sum = UINT64_MAX;
}

struct UnitTotals {
  uint64_t overflows = 0;
  uint64_t deferred = 0;
  uint64_t samples = 0;
  uint64_t lost_samples = 0;
  uint64_t aux_bytes = 0;
  uint64_t branches = 0;
  uint64_t counted_insns = 0;
  uint64_t counted_branches = 0;
  uint64_t native_gaps = 0;
  uint64_t native_ns = 0;
  uint64_t blocks_translated = 0;
  uint64_t window_ns = 0;
  uint64_t no_slot_overflows = 0;
  std::array<uint64_t, channel::kReasonCount> ended_by{};

  void add(const channel::Counters& counters) {
    const auto add_one = [](uint64_t& sum, const std::atomic<uint64_t>& counter) {
      add_saturating(sum, counter.load(std::memory_order_relaxed));
    };
    add_one(overflows, counters.overflows);
    add_one(deferred, counters.deferred);
    add_one(samples, counters.samples);
    add_one(lost_samples, counters.lost_samples);
    add_one(aux_bytes, counters.aux_bytes);
    add_one(branches, counters.branches);
    add_one(counted_insns, counters.counted_insns);
    add_one(counted_branches, counters.counted_branches);
    add_one(native_gaps, counters.native_gaps);
    add_one(native_ns, counters.native_ns);
    add_one(blocks_translated, counters.blocks_translated);
    add_one(window_ns, counters.window_ns);
    for (size_t i = 0; i < channel::kReasonCount; ++i) add_one(ended_by[i], counters.ended_by[i]);
  }
  void add(const UnitTotals& other) {
    add_saturating(overflows, other.overflows);
    add_saturating(deferred, other.deferred);
    add_saturating(samples, other.samples);
    add_saturating(lost_samples, other.lost_samples);
    add_saturating(aux_bytes, other.aux_bytes);
    add_saturating(branches, other.branches);
    add_saturating(counted_insns, other.counted_insns);
    add_saturating(counted_branches, other.counted_branches);
    add_saturating(native_gaps, other.native_gaps);
    add_saturating(native_ns, other.native_ns);
    add_saturating(blocks_translated, other.blocks_translated);
    add_saturating(window_ns, other.window_ns);
    add_saturating(no_slot_overflows, other.no_slot_overflows);
    for (size_t i = 0; i < channel::kReasonCount; ++i) {
      add_saturating(ended_by[i], other.ended_by[i]);
    }
  }
};

// The recorder's own counts.
struct RecordTotals {
  uint64_t samples = 0;       // accepted and written
  uint64_t aux_bytes = 0;     // in these
  uint64_t lost_records = 0;  // samples that LOST records tell of
  uint64_t bad_records = 0;   // refused by SampleCheck
  uint64_t bad_rings = 0;     // heads or record headers that made no sense
  uint64_t bad_ring_bytes = 0;
  uint64_t orphan_slots = 0;  // rings of threads that could not be told to be the process's
  uint64_t side_band_lost = 0;
  uint64_t aux_lost_bytes = 0;   // full trace: found no room in the AUX area
  uint64_t short_snapshots = 0;  // of a thread, that have less than was asked for, or nothing

  void add(const RecordTotals& other) {
    samples += other.samples;
    aux_bytes += other.aux_bytes;
    lost_records += other.lost_records;
    bad_records += other.bad_records;
    bad_rings += other.bad_rings;
    bad_ring_bytes += other.bad_ring_bytes;
    orphan_slots += other.orphan_slots;
    side_band_lost += other.side_band_lost;
    add_saturating(aux_lost_bytes, other.aux_lost_bytes);
    short_snapshots += other.short_snapshots;
  }
};

}  // namespace auxtrail::record
