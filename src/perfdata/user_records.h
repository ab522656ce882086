// The records that perf's tools put between the kernel's (types >= 64), built and parsed.
//
// append_*() adds one whole record, a multiple of 8 bytes, to `out`; parse_*() gives nothing for a
// record that is malformed. Reference: docs/formats/perf-data.md, section "Records of the tools".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "abi/record.h"
#include "base/bytes.h"

namespace auxtrail::perfdata {

inline constexpr uint32_t kAuxtraceTypeIntelPt = 1;

// What a decoder must know about the Intel PT data in the file.
struct IntelPtInfo {
  uint64_t pmu_type = 8;  // attr.type of the intel_pt event
  uint64_t time_shift = 0;
  uint64_t time_mult = 1;  // never 0: perf would divide by it
  uint64_t time_zero = 0;
  uint64_t cap_user_time_zero = 0;  // 0: timeless, each sample is decoded alone
  uint64_t tsc_bit = 0x400;
  uint64_t noretcomp_bit = 0x800;
  uint64_t have_sched_switch = 0;
  uint64_t snapshot_mode = 0;
  uint64_t per_cpu_mmaps = 0;
  uint64_t mtc_bit = 0x200;
  uint64_t mtc_freq_bits = 0x3c000;
  uint64_t tsc_ctc_ratio_n = 0;
  uint64_t tsc_ctc_ratio_d = 0;
  uint64_t cyc_bit = 0x2;
  uint64_t max_nonturbo_ratio = 0;
  std::string filter;
};

struct AuxtraceInfo {
  uint32_t type = 0;                    // kAuxtraceTypeIntelPt or another trace's
  std::vector<uint64_t> priv;           // as in the file
  std::optional<IntelPtInfo> intel_pt;  // if type says so and priv has at least 10 words
};

struct AuxtraceRecord {
  uint64_t size_bytes = 0;  // of the payload that follows the record
  uint64_t offset = 0;      // in the AUX area
  uint64_t reference = 0;
  uint32_t index = 0;
  uint32_t tid = 0;
  uint32_t cpu = 0;
};

struct AuxtraceErrorRecord {
  uint32_t type = 0;
  uint32_t code = 0;
  uint32_t cpu = 0;
  uint32_t pid = 0;
  uint32_t tid = 0;
  uint64_t ip = 0;
  uint64_t time_ns = 0;
  std::string message;
};

struct IdIndexEntry {
  uint64_t id = 0;
  uint64_t queue_index = 0;
  int64_t cpu = -1;
  int64_t tid = -1;
};

struct TimeConversion {
  uint64_t time_shift = 0;
  uint64_t time_mult = 1;
  uint64_t time_zero = 0;
  uint64_t time_cycles = 0;
  uint64_t time_mask = 0;
  bool cap_user_time_zero = false;
  bool cap_user_time_short = false;
};

struct ThreadMapEntry {
  uint64_t tid = 0;
  std::string name;  // at most 15 characters are kept
};

void append_intel_pt_info(ByteWriter& out, const IntelPtInfo& info);
// The record alone; its payload follows it in the file (see Writer::append_auxtrace).
void append_auxtrace(ByteWriter& out, const AuxtraceRecord& auxtrace);
// As many ID_INDEX records as the entries need (one holds at most 2046).
void append_id_index(ByteWriter& out, std::span<const IdIndexEntry> entries);
void append_time_conv(ByteWriter& out, const TimeConversion& conversion);
void append_thread_map(ByteWriter& out, std::span<const ThreadMapEntry> threads);
void append_cpu_map(ByteWriter& out, std::span<const uint16_t> cpus);
void append_finished_init(ByteWriter& out);
void append_finished_round(ByteWriter& out);

std::optional<AuxtraceInfo> parse_auxtrace_info(const abi::Record& record);
std::optional<AuxtraceRecord> parse_auxtrace(const abi::Record& record);
std::optional<AuxtraceErrorRecord> parse_auxtrace_error(const abi::Record& record);
std::optional<std::vector<IdIndexEntry>> parse_id_index(const abi::Record& record);
std::optional<TimeConversion> parse_time_conv(const abi::Record& record);
std::optional<std::vector<ThreadMapEntry>> parse_thread_map(const abi::Record& record);

}  // namespace auxtrail::perfdata
