// What `auxtrail record` was asked to do, after the command line has been read.
//
// The defaults are those of the man page: task-clock in user space at 999 Hz, 4 KiB AUX samples,
// 512 KiB of data ring and 64 KiB of AUX area per thread. What -e and its neighbours mean together
// is worked out in event_choice.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/address_filter.h"

namespace auxtrail::record {

enum class TraceChoice : uint8_t {
  kAuto,      // the best trace unit there is
  kSoftware,  // the software trace unit even where there is Intel PT
};

// --unit: how the software trace unit traces.
enum class UnitChoice : uint8_t {
  kAuto,        // windows, or continuously where the events or the mode need it
  kWindow,      // a stretch of the program at each overflow, natively between
  kContinuous,  // everything, from the code cache
};

// -S: the AUX area is a ring that is written over and over, and read when asked.
struct SnapshotOptions {
  uint64_t bytes = 0;    // of each snapshot; 0: the whole AUX area
  bool on_exit = false;  // "e": one more when the recording ends
};

// --filter: of the event that was given last before it.
struct FilterOption {
  std::string text;
  size_t event_bytes = 0;  // how much of RecordOptions::event stood before it
};

inline constexpr uint32_t kDefaultFrequencyHz = 999;
inline constexpr char kDefaultEvent[] = "task-clock:u";
inline constexpr uint32_t kDefaultAuxSampleBytes = 4096;   // as perf
inline constexpr uint32_t kMaxAuxSampleBytes = 60 * 1024;  // as perf
// What the software trace unit can serve: a signal and a window take tens of microseconds, and a
// program that overflows faster than that would stand still.
inline constexpr uint64_t kMaxUnitRateHz = 20000;
inline constexpr uint32_t kDefaultAuxPages = 16;
// With full trace and snapshots, as perf for a privileged user: 4 MiB.
inline constexpr uint32_t kDefaultTraceAuxPages = 1024;
// A window begins with a PSB+ and ends with a FUP; this leaves room for some branches between.
inline constexpr uint32_t kMinAuxSampleBytes = 160;

struct RecordOptions {
  std::string event;  // -e, those of several joined by commas; empty: kDefaultEvent
  std::optional<uint64_t> frequency_hz;
  bool frequency_max = false;  // -F max
  uint64_t period = 0;         // -c; not 0 means: a fixed period, frequency_hz is ignored (as perf)
  std::string output = "perf.data";
  std::optional<uint32_t> aux_sample_bytes;  // --aux-sample, 0: the default size
  std::optional<SnapshotOptions> snapshot;   // -S
  std::vector<FilterOption> filters;         // --filter
  FindSymbol find_symbol;                    // for filters that name symbols; may be empty
  UnitChoice unit = UnitChoice::kAuto;
  uint32_t data_pages = 128;          // per thread, 2^n
  std::optional<uint32_t> aux_pages;  // per thread, 2^n
  bool inherit = true;                // false: only the first thread of CMD, as perf's -i
  bool quiet = false;
  TraceChoice trace = TraceChoice::kAuto;
  std::vector<std::string> command;                // CMD and its arguments, not empty
  std::vector<std::string> recorder_command_line;  // how the recorder was called, for the file
};

}  // namespace auxtrail::record
