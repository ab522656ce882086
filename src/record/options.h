// What `auxtrail record` was asked to do, after the command line has been read.
//
// The defaults are those of the man page: task-clock in user space at 999 Hz, 4 KiB AUX samples,
// 512 KiB of data ring and 64 KiB of AUX area per thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace auxtrail::record {

enum class TraceChoice : uint8_t {
  kAuto,      // the best trace unit there is
  kSoftware,  // the software trace unit even where there is Intel PT
};

inline constexpr uint32_t kDefaultFrequencyHz = 999;
inline constexpr uint32_t kDefaultAuxSampleBytes = 4096;   // as perf
inline constexpr uint32_t kMaxAuxSampleBytes = 60 * 1024;  // as perf
// What the software trace unit can serve: a signal and a window take tens of microseconds, and a
// program that overflows faster than that would stand still.
inline constexpr uint64_t kMaxUnitRateHz = 20000;
// A window begins with a PSB+ and ends with a FUP; this leaves room for some branches between.
inline constexpr uint32_t kMinAuxSampleBytes = 160;

struct RecordOptions {
  std::string event = "task-clock:u";
  uint64_t frequency_hz = kDefaultFrequencyHz;
  bool frequency_max = false;  // -F max
  uint64_t period = 0;         // -c; not 0 means: a fixed period, frequency_hz is ignored (as perf)
  std::string output = "perf.data";
  uint32_t aux_sample_bytes = kDefaultAuxSampleBytes;
  uint32_t data_pages = 128;  // per thread, 2^n
  uint32_t aux_pages = 16;    // per thread, 2^n
  bool inherit = true;        // false: only the first thread of CMD, as perf's -i
  bool quiet = false;
  TraceChoice trace = TraceChoice::kAuto;
  std::vector<std::string> command;                // CMD and its arguments, not empty
  std::vector<std::string> recorder_command_line;  // how the recorder was called, for the file
};

}  // namespace auxtrail::record
