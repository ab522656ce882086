// TraceQueues: the AUXTRACE records of a file, put together to one trace per AUX area.
//
// Each record holds the bytes that were read from one AUX area (its queue: a thread's, or a CPU's)
// since the last reading. A segment is what lies behind each other without a gap:
//
//   queue 3   [offset 0, 4096) [4096, 8192)     ...lost...    [20480, 24576)
//             └──────── segment ──────────┘                   └── segment ──┘
//
// Full trace: offsets tell what follows what. Snapshots: each record is a copy of the newest bytes,
// and successive ones may overlap, so the bytes tell: where the tail of one (from its last PSB on)
// is found in the next, the next goes on behind it. Only views into the file are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "perfdata/reader.h"

namespace auxtrail::analysis {

struct TraceSegment {
  std::vector<std::span<const std::byte>> pieces;  // none of them empty
  uint64_t offset = 0;                             // in the AUX area's whole output
  uint64_t reference = 0;                          // TSC when its first record was read; 0: unknown

  [[nodiscard]] uint64_t size_bytes() const;
};

struct TraceQueue {
  uint32_t index = 0;
  int32_t tid = -1;  // -1: a CPU's queue, of all threads that ran there
  int32_t cpu = -1;
  std::vector<TraceSegment> segments;
};

struct QueueStatistics {
  uint64_t buffers = 0;  // AUXTRACE records
  uint64_t trace_bytes = 0;
  uint64_t lost_bytes = 0;     // between two records of a queue
  uint64_t gaps = 0;           // how often
  uint64_t overlap_bytes = 0;  // of snapshots, held by the one before
};

class TraceQueues {
 public:
  // `snapshots`: the file was recorded so (AUXTRACE_INFO), and overlaps are to be looked for.
  explicit TraceQueues(bool snapshots) : snapshots_(snapshots) {}

  // In the file's order. The payload must stay alive.
  void add(const perfdata::AuxtraceRecord& record, std::span<const std::byte> payload);

  [[nodiscard]] const std::map<uint32_t, TraceQueue>& queues() const { return queues_; }
  [[nodiscard]] const QueueStatistics& statistics() const { return statistics_; }

 private:
  void add_snapshot(TraceQueue& queue, const perfdata::AuxtraceRecord& record,
                    std::span<const std::byte> payload);
  bool follows(TraceQueue& queue, const perfdata::AuxtraceRecord& record);

  bool snapshots_;
  std::map<uint32_t, TraceQueue> queues_;
  std::map<uint32_t, std::span<const std::byte>> last_snapshots_;  // by queue
  QueueStatistics statistics_;
};

// Where two snapshots of one AUX area meet: `next` goes on behind its first `known_bytes`, after
// `previous` without its last `padding_bytes` zeros, which may be the record's and not the trace's.
struct SnapshotOverlap {
  size_t known_bytes = 0;
  size_t padding_bytes = 0;
};
// Found by the last PSB of `previous` and all that comes after it. Nothing if they do not overlap.
std::optional<SnapshotOverlap> find_overlap(std::span<const std::byte> previous,
                                            std::span<const std::byte> next);

}  // namespace auxtrail::analysis
