// Recording: a perf.data file opened for analysis: its records, the processes' address spaces over
// time, the files behind them and their symbols.
//
// Opening reads the side-band (mappings, forks, execs, names) of the whole file once, so that every
// later question "what lay at this address then" can be answered whatever the order of records.
// What it holds grows with the number of mappings and processes, not with the number of samples.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "decode/branch_decoder.h"
#include "image/address_space.h"
#include "image/dso.h"
#include "image/symbolizer.h"
#include "perfdata/reader.h"

namespace auxtrail::analysis {

// The pid under which perf's files keep the kernel's mappings.
inline constexpr int32_t kKernelPid = -1;

// From this time on the thread ran on the CPU.
struct CpuSwitch {
  uint64_t time_ns = 0;
  int32_t pid = -1;
  int32_t tid = -1;
};

// Not thread-safe.
class Recording {
 public:
  static Result<Recording> open(const std::string& path, image::DsoOptions options = {});
  // Over bytes that stay alive and unchanged as long as the Recording.
  static Result<Recording> from_bytes(std::span<const std::byte> bytes, const std::string& name,
                                      image::DsoOptions options = {});

  [[nodiscard]] perfdata::Reader& reader() { return reader_; }
  [[nodiscard]] image::DsoTable& dsos() { return *dsos_; }
  [[nodiscard]] image::AddressSpaces& spaces() { return *spaces_; }
  [[nodiscard]] image::Symbolizer& symbolizer() { return *symbolizer_; }

  // Whether auxtrail's software trace unit made the histories.
  [[nodiscard]] bool by_software_unit() const;
  // Whether it made them in windows that begin at an overflow: then none of its files' events is
  // that of continuous trace (abi::kFatalSignalEvent).
  [[nodiscard]] bool in_windows() const;
  // What the decoder must know about the machine: its errata if a hardware trace unit recorded, and
  // nothing if it was the software trace unit.
  [[nodiscard]] decode::TraceConfig trace_config();

  // The process of a thread, as far as the side-band tells; else the thread's own number.
  [[nodiscard]] int32_t pid_of(int32_t tid) const;
  // Which threads ran on a CPU, by time (SWITCH, SWITCH_CPU_WIDE and ITRACE_START records).
  [[nodiscard]] const std::vector<CpuSwitch>& switches(int32_t cpu) const;

  // A name for people: the thread's, or ":TID" if no COMM told it, as perf has it.
  [[nodiscard]] std::string comm(uint32_t pid, uint32_t tid, uint64_t time_ns);

 private:
  Recording(perfdata::Reader reader, image::DsoOptions options);
  void load_side_band();
  void load_record(const perfdata::DataRecord& record);
  void load_start(const perfdata::DataRecord& record);
  void load_switch(const perfdata::DataRecord& record);

  perfdata::Reader reader_;
  std::unique_ptr<image::DsoTable> dsos_;
  std::unique_ptr<image::AddressSpaces> spaces_;
  std::unique_ptr<image::Symbolizer> symbolizer_;
  std::map<int32_t, int32_t> pids_;  // by tid
  std::map<int32_t, std::vector<CpuSwitch>> switches_;
};

}  // namespace auxtrail::analysis
