// perf.data files about traced_code.S, whose decoding is known in advance: what the tests of this
// layer and of the commands read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "abi/sample.h"
#include "base/bytes.h"
#include "decode/branch.h"
#include "perfdata/user_records.h"

namespace auxtrail::analysis::testing {

// The addresses of traced_code.S in this process.
struct TracedCode {
  uint64_t main = 0;
  uint64_t loop = 0;   // the call
  uint64_t after = 0;  // behind the call
  uint64_t jnz = 0;
  uint64_t end = 0;  // behind the loop
  uint64_t leaf = 0;
  uint64_t ret = 0;  // the leaf's
};
TracedCode traced_code();

// A run from traced_main to behind the loop: its packets, and what they must decode to.
std::vector<std::byte> traced_window(uint64_t tsc);
std::vector<decode::Branch> traced_branches();  // with the markers of begin and end
inline constexpr uint64_t kTracedTaken = 8;
inline constexpr uint64_t kTracedNotTaken = 1;
inline constexpr uint64_t kTracedInstructions = 16;
inline constexpr uint64_t kTracedInMain = 10;        // instructions
inline constexpr uint64_t kTracedTakenFromMain = 5;  // three calls, two jnz

struct TracedSample {
  uint64_t ip = 0;
  uint64_t time_ns = 0;
  std::vector<std::byte> aux;
  uint32_t tid = 0;
};

// `count` samples at the end of such runs, in time order.
std::vector<TracedSample> traced_samples(size_t count);

// A file with COMM "traced" and this process's code mapped at time 0, unless `mapped` is false, and
// these samples. `version` is what the recording tool says of itself, `filter` the address filters.
std::vector<std::byte> traced_file(const std::vector<TracedSample>& samples, bool mapped = true,
                                   const std::string& version = "", const std::string& filter = "");
// The file of that code.
std::string traced_path();

// ---- full trace ----

// One thread's trace: `rounds` runs of traced_main, one each `step_ns`, tracing off between them; a
// PSB+ stands before each `rounds_per_psb`-th run.
struct TracedThread {
  uint32_t tid = 0;
  uint64_t start_ns = 1'000'000'000;
  uint64_t step_ns = 1000;
  size_t rounds = 100;
  size_t rounds_per_psb = 4;
};
std::vector<std::byte> thread_trace(const TracedThread& thread);

// What AUXTRACE records a file holds.
struct TracedBuffer {
  perfdata::AuxtraceRecord record;
  std::vector<std::byte> bytes;
};
// The thread's trace in records of at least `buffer_bytes`, in queue `index`. They end between
// packets, as those of a trace unit do; Linux perf can't read others.
std::vector<TracedBuffer> full_trace(const TracedThread& thread, uint32_t index,
                                     size_t buffer_bytes);
// Copies of the newest `area_bytes`, taken after each `every_bytes` or some more, and at the end.
std::vector<TracedBuffer> snapshots(const TracedThread& thread, uint32_t index, size_t area_bytes,
                                    size_t every_bytes);

// Appends more side-band records.
using MoreRecords = std::function<void(ByteWriter& out, const abi::SampleFormat& format)>;

// The same file as traced_file(), with these records before the samples (which have no AUX bytes).
// Threads that are not the first are told of by FORK.
std::vector<std::byte> full_trace_file(const std::vector<TracedBuffer>& buffers,
                                       const std::vector<TracedSample>& samples = {},
                                       bool snapshots = false, const MoreRecords& more = {});

}  // namespace auxtrail::analysis::testing
