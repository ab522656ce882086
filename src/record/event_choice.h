// What a recording records: from -e, -S, --aux-sample, --unit and --filter to one AUX leader, its
// samplers, the mode and the kind of trace unit. perf's rules, with one addition: where no AUX
// event is named, an "intel_pt//u" of our own leads all events, and they carry AUX samples. So:
//
//   (nothing)                                   AUX samples at task-clock:u, 999 Hz
//   -e page-faults:u                            AUX samples at page faults
//   -e intel_pt//u                              full trace
//   -e intel_pt//u -S                           snapshots, at SIGUSR2 (and with -Se at the end)
//   -e '{intel_pt//u,page-faults:u}'            full trace, and page faults without AUX data
//   -e '{intel_pt//u,page-faults:u}' --aux-sample           AUX samples at page faults
//   -e '{intel_pt//u,page-faults/aux-sample-size=8192/u}'   the same, of 8 KiB
//   -e '{intel_pt//u,page-faults:u,branches:u}:S' --aux-sample  and each tells the branches so far
//
// The trace covers user space: ":u" is implied, but for events that happen inside the kernel only
// (context switches, tracepoints), which would then never be seen.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "channel/layout.h"
#include "record/address_filter.h"
#include "record/machine.h"
#include "record/options.h"

namespace auxtrail::record {

using channel::TraceMode;

enum class UnitKind : uint8_t { kWindow, kContinuous };

// Who counts an event until it overflows.
enum class Counter : uint8_t {
  kKernel,        // perf_event_open
  kBranches,      // the continuous unit, exactly: every branch instruction of user space
  kInstructions,  // the same with all instructions
};

struct AuxLeader {
  perf_event_attr attr{};  // type, config; user space only
  std::string name;
  std::vector<AddressFilter> filters;
  bool implied = false;  // no event of -e
};

struct Sampler {
  // type, config, breakpoint, exclude_*, precise_ip, freq and sample_freq or sample_period,
  // aux_sample_size, inherit, read_format, and PERF_SAMPLE_READ alone in sample_type
  perf_event_attr attr{};
  std::string name;  // with its modifier: "task-clock:u"
  Counter counter = Counter::kKernel;
  bool in_kernel = false;    // it overflows inside the kernel
  bool grouped = false;      // a member of the AUX leader's group
  bool counts_only = false;  // :S of another member: it is read, and takes no samples
  uint32_t read_group = 0;   // with :S: members of the same number read each other; 0: it is alone
  std::string filter;        // of a tracepoint
};

struct EventChoice {
  TraceMode mode = TraceMode::kSample;
  UnitKind unit = UnitKind::kWindow;
  AuxLeader leader;
  std::vector<Sampler> samplers;  // in the order of -e; may be empty but for kSample
  SnapshotOptions snapshot;       // with kSnapshot
  uint32_t aux_pages = 0;         // as given or the mode's default; more where that can't work
  std::vector<std::string> warnings;
};

// Errors: wrong spelling, unknown events, what the trace unit can't do, what excludes each other;
// each with what to do instead.
Result<EventChoice> choose_events(const RecordOptions& options, const MachineFacts& machine);

}  // namespace auxtrail::record
