// The kernel's side-band records (everything but samples), parsed one struct each.
//
// parse(record, format, out) returns kOk and fills `out`, the trailer included. Texts and arrays
// are views into the record. Reference: <linux/perf_event.h>, enum perf_event_type.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "abi/record.h"
#include "abi/sample.h"

namespace auxtrail::abi {

struct MmapRecord {  // MMAP and MMAP2
  SampleId id;
  uint16_t misc = 0;
  uint32_t pid = 0;
  uint32_t tid = 0;
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  uint64_t file_offset = 0;
  uint32_t device_major = 0;  // these four only without a build id
  uint32_t device_minor = 0;
  uint64_t inode = 0;
  uint64_t inode_generation = 0;
  std::span<const std::byte> build_id;  // empty if the record carries none
  uint32_t protection = 0;              // PROT_*; PROT_EXEC assumed for an MMAP without MMAP_DATA
  uint32_t flags = 0;                   // MAP_*
  std::string_view path;

  [[nodiscard]] bool executable() const;
};

struct CommRecord {
  SampleId id;
  uint32_t pid = 0;
  uint32_t tid = 0;
  bool exec = false;
  std::string_view name;
};

struct TaskRecord {  // FORK and EXIT
  SampleId id;
  uint32_t pid = 0;
  uint32_t parent_pid = 0;
  uint32_t tid = 0;
  uint32_t parent_tid = 0;
  uint64_t time_ns = 0;
};

struct LostRecord {  // LOST and LOST_SAMPLES
  SampleId id;
  uint64_t event_id = 0;  // 0 in LOST_SAMPLES
  uint64_t lost = 0;
};

struct ThrottleRecord {  // THROTTLE and UNTHROTTLE
  SampleId id;
  uint64_t time_ns = 0;
  uint64_t event_id = 0;
  uint64_t stream_id = 0;
};

struct ReadRecord {
  SampleId id;
  uint32_t pid = 0;
  uint32_t tid = 0;
  ReadValues values;
};

struct AuxRecord {
  SampleId id;
  uint64_t aux_offset = 0;
  uint64_t aux_size_bytes = 0;
  uint64_t flags = 0;  // PERF_AUX_FLAG_*
};

struct ItraceStartRecord {
  SampleId id;
  uint32_t pid = 0;
  uint32_t tid = 0;
};

struct SwitchRecord {  // SWITCH and SWITCH_CPU_WIDE
  SampleId id;
  bool out = false;
  bool preempted = false;
  uint32_t other_pid = 0;  // next or previous; 0 in SWITCH
  uint32_t other_tid = 0;
};

struct NamespacesRecord {
  SampleId id;
  uint32_t pid = 0;
  uint32_t tid = 0;
  PackedArray<perf_ns_link_info> links;
};

struct KsymbolRecord {
  SampleId id;
  uint64_t address = 0;
  uint32_t size_bytes = 0;
  uint16_t symbol_type = 0;
  uint16_t flags = 0;
  std::string_view name;
};

struct BpfRecord {
  SampleId id;
  uint16_t event = 0;
  uint16_t flags = 0;
  uint32_t program_id = 0;
  std::span<const std::byte> tag;
};

struct CgroupRecord {
  SampleId id;
  uint64_t cgroup = 0;
  std::string_view path;
};

struct TextPokeRecord {
  SampleId id;
  uint64_t address = 0;
  std::span<const std::byte> old_bytes;
  std::span<const std::byte> new_bytes;
};

struct AuxHwIdRecord {
  SampleId id;
  uint64_t hardware_id = 0;
};

ParseStatus parse(const Record& record, const SampleFormat& format, MmapRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, CommRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, TaskRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, LostRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, ThrottleRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, ReadRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, AuxRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, ItraceStartRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, SwitchRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, NamespacesRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, KsymbolRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, BpfRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, CgroupRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, TextPokeRecord& out);
ParseStatus parse(const Record& record, const SampleFormat& format, AuxHwIdRecord& out);

}  // namespace auxtrail::abi
