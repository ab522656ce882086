// Deferred packets: logs that are full, and whose packets nobody has asked for yet.
//
// Of AUX sampling nobody reads more than the samples, each the newest bytes of the AUX area. What
// is overwritten before a sample is due was written in vain, and that would be most of it. So in
// continuous trace with samples alone a full log (branch_log.h) is set aside, and becomes packets
// when their end is needed: for a sample, at a system call, where the thread leaves the cache. Of
// more logs than a sample takes the oldest is forgotten; the packets then begin anew, with a PSB+,
// at the oldest that is left. Full trace and snapshots (copied by the recorder at any time) have
// all packets written; address filters and the unit's own counts need every log at once.
//
// Translated code does not know of this: its log lies somewhere else each time. The owning thread's
// alone, while it is not in translated code. A sampler's signal may interrupt any of these
// functions; it then does no more than set Thread::samples_due.
#pragma once

#include <cstdint>

namespace auxtrail::unit {

struct Thread;

// A ring of places for logs. Fewer are set aside than there are places: the current log has the
// place (oldest + count) % places.
struct DeferredLogs {
  struct Log {
    uint64_t start;
    uint64_t end;
    uint64_t begin_ns;  // when the log before was set aside, and this one: for TSC packets
    uint64_t end_ns;
  };
  static constexpr uint32_t kMaxLogs = 128;

  bool active = false;
  bool forgot = false;  // some before the oldest, or before the current one if none is set aside
  uint64_t memory = 0;  // kLogAlignment-aligned; mapped once
  uint32_t places = 0;
  uint32_t oldest = 0;
  uint32_t count = 0;    // of those set aside
  uint64_t last_ns = 0;  // when one was set aside last
  uint64_t now_ns = 0;   // of the packets that are written just now; 0: the present
  Log logs[kMaxLogs];
};

// How the logs of a thread are divided so that samples of `sample_bytes` have their packets.
struct DeferredSize {
  uint32_t places;
  uint32_t units;  // of each log
};
constexpr DeferredSize deferred_size(uint64_t sample_bytes) {
  // Where less than a quarter of a byte comes of a unit, samples are shorter. In eight programs all
  // samples were whole, but for the first ones of threads and behind code that went away.
  constexpr uint64_t kUnitsPerByte = 4;
  constexpr uint64_t kMaxUnits = 2048;  // signals wait for the end of a log
  constexpr uint64_t kLeastLogs = 8;
  const uint64_t all = sample_bytes * kUnitsPerByte;
  uint64_t units = all / kLeastLogs;
  if (units > kMaxUnits) units = kMaxUnits;
  if (units == 0) units = 1;
  const uint64_t logs = all / units + 2;
  constexpr uint64_t kMaxLogs = DeferredLogs::kMaxLogs;
  return {static_cast<uint32_t>(logs < kMaxLogs ? logs : kMaxLogs), static_cast<uint32_t>(units)};
}

// Whether there is something that was set aside, or forgotten.
bool has_deferred(const Thread& thread);

// For a thread that has just got its slot. Where there is no memory nothing is deferred.
void defer_packets(Thread& thread, const DeferredSize& size);
// Forgets all logs. The caller starts one, with start_log().
void drop_deferred(Thread& thread);
// Sets the current log aside, up to the thread's position in it, and starts another. No sample is
// due, and the thread is traced.
void set_aside(Thread& thread);
// Turns what was set aside and the current log into packets. Nothing of it, if that can't be
// decoded any more because some code is gone.
void catch_up(Thread& thread);

}  // namespace auxtrail::unit
