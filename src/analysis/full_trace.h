// FullTrace: the AUXTRACE records of a recording, decoded in order of time.
//
//   FullTrace trace(recording, *decoder);
//   trace.advance(time_ns, visitor);   // as often as wanted, with rising times
//   trace.finish(visitor);
//
// Every queue is a stream of its own (decode::TraceStream); the one that is furthest behind goes on
// next. Memory is bounded: a window of trace per queue.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "analysis/recording.h"
#include "analysis/trace_queues.h"
#include "decode/branch_decoder.h"
#include "image/code_map.h"

namespace auxtrail::analysis {

// Whose flow it is, and when. Views that end with the visit.
struct TracePosition {
  int32_t pid = -1;
  int32_t tid = -1;
  int32_t cpu = -1;      // -1: unknown
  uint64_t time_ns = 0;  // of the last TSC packet; 0: the trace has none
  const image::Layout& code;
};

// Receives the flow of all threads: each one's in order, and one thread's next to another's by
// time, as exactly as the trace's TSC packets tell. Override what you need.
class TraceVisitor {
 public:
  virtual ~TraceVisitor() = default;
  virtual void on_branch(const TracePosition&, const decode::Branch&) {}
  virtual void on_block(const TracePosition&, const decode::Block&) {}
  virtual void on_error(const TracePosition&, const decode::DecodeError&) {}
  [[nodiscard]] virtual bool wants_more() const { return true; }
};

// Whether the file holds trace outside of samples.
bool has_full_trace(perfdata::Reader& reader);

class FullTrace {
 public:
  // Looks for AUXTRACE records: one pass over the records, without their data.
  FullTrace(Recording& recording, decode::BranchDecoder& decoder);
  ~FullTrace();

  [[nodiscard]] bool empty() const { return queues_.queues().empty(); }
  // Decodes everything up to this time.
  void advance(uint64_t until_ns, TraceVisitor& visitor);
  void finish(TraceVisitor& visitor);

  [[nodiscard]] const QueueStatistics& queues() const { return queues_.statistics(); }
  // Threads and CPUs that were traced.
  [[nodiscard]] size_t queue_count() const { return queues_.queues().size(); }
  // The sum over all queues, complete after finish().
  [[nodiscard]] decode::DecodeSummary decoded() const;

 private:
  class Runner;

  TraceQueues queues_;
  std::vector<std::unique_ptr<Runner>> runners_;  // those that are not at their end
  decode::DecodeSummary done_;
};

}  // namespace auxtrail::analysis
