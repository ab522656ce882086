// The one table of sample fields, in the order in which they stand in a PERF_RECORD_SAMPLE.
//
// The engine that writes samples (inside the traced program) and the parser that reads them (in the
// tools) both go through this table, so they cannot disagree about the order. The order is the
// kernel's code, not the comment of <linux/perf_event.h>, which places AUX earlier. Header-only,
// constexpr, no libc calls: safe in a signal handler.
//
// Reference: perf_event_open(2) "MMAP layout"; docs/formats/perf-data.md, section "Sample fields".
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>

namespace auxtrail::abi {

enum class SampleField : uint8_t {
  kIdentifier,    // u64
  kIp,            // u64
  kTid,           // u32 pid, u32 tid
  kTime,          // u64
  kAddr,          // u64
  kId,            // u64
  kStreamId,      // u64
  kCpu,           // u32 cpu, u32 reserved
  kPeriod,        // u64
  kRead,          // see ReadFormat below
  kCallchain,     // u64 nr, u64 ips[nr]
  kRaw,           // u32 size, bytes, padded so that both are a multiple of 8
  kBranchStack,   // u64 nr[, u64 hw_idx], 24 bytes x nr[, u64 counters x nr]
  kRegsUser,      // u64 abi[, u64 regs[popcount(sample_regs_user)] unless abi is 0]
  kStackUser,     // u64 size[, bytes, u64 dyn_size unless size is 0]
  kWeight,        // u64, or {u32, u16, u16} with WEIGHT_STRUCT
  kDataSrc,       // u64
  kTransaction,   // u64
  kRegsIntr,      // as kRegsUser, with sample_regs_intr
  kPhysAddr,      // u64
  kCgroup,        // u64
  kDataPageSize,  // u64
  kCodePageSize,  // u64
  kAux,           // u64 size, bytes
  kCount
};

struct SampleFieldInfo {
  SampleField field;
  uint64_t sample_type_bits;  // the field is there if any of these bits is set
  uint8_t fixed_bytes;        // its size, or 0 if the size depends on the data
  const char* name;
};

inline constexpr SampleFieldInfo kSampleFields[] = {
    {SampleField::kIdentifier, PERF_SAMPLE_IDENTIFIER, 8, "IDENTIFIER"},
    {SampleField::kIp, PERF_SAMPLE_IP, 8, "IP"},
    {SampleField::kTid, PERF_SAMPLE_TID, 8, "TID"},
    {SampleField::kTime, PERF_SAMPLE_TIME, 8, "TIME"},
    {SampleField::kAddr, PERF_SAMPLE_ADDR, 8, "ADDR"},
    {SampleField::kId, PERF_SAMPLE_ID, 8, "ID"},
    {SampleField::kStreamId, PERF_SAMPLE_STREAM_ID, 8, "STREAM_ID"},
    {SampleField::kCpu, PERF_SAMPLE_CPU, 8, "CPU"},
    {SampleField::kPeriod, PERF_SAMPLE_PERIOD, 8, "PERIOD"},
    {SampleField::kRead, PERF_SAMPLE_READ, 0, "READ"},
    {SampleField::kCallchain, PERF_SAMPLE_CALLCHAIN, 0, "CALLCHAIN"},
    {SampleField::kRaw, PERF_SAMPLE_RAW, 0, "RAW"},
    {SampleField::kBranchStack, PERF_SAMPLE_BRANCH_STACK, 0, "BRANCH_STACK"},
    {SampleField::kRegsUser, PERF_SAMPLE_REGS_USER, 0, "REGS_USER"},
    {SampleField::kStackUser, PERF_SAMPLE_STACK_USER, 0, "STACK_USER"},
    {SampleField::kWeight, PERF_SAMPLE_WEIGHT_TYPE, 8, "WEIGHT"},
    {SampleField::kDataSrc, PERF_SAMPLE_DATA_SRC, 8, "DATA_SRC"},
    {SampleField::kTransaction, PERF_SAMPLE_TRANSACTION, 8, "TRANSACTION"},
    {SampleField::kRegsIntr, PERF_SAMPLE_REGS_INTR, 0, "REGS_INTR"},
    {SampleField::kPhysAddr, PERF_SAMPLE_PHYS_ADDR, 8, "PHYS_ADDR"},
    {SampleField::kCgroup, PERF_SAMPLE_CGROUP, 8, "CGROUP"},
    {SampleField::kDataPageSize, PERF_SAMPLE_DATA_PAGE_SIZE, 8, "DATA_PAGE_SIZE"},
    {SampleField::kCodePageSize, PERF_SAMPLE_CODE_PAGE_SIZE, 8, "CODE_PAGE_SIZE"},
    {SampleField::kAux, PERF_SAMPLE_AUX, 0, "AUX"},
};
static_assert(sizeof(kSampleFields) / sizeof(kSampleFields[0]) ==
              static_cast<size_t>(SampleField::kCount));

// The trailer (struct sample_id) of every kernel record that is not a sample, with
// attr.sample_id_all.
inline constexpr SampleFieldInfo kTrailerFields[] = {
    {SampleField::kTid, PERF_SAMPLE_TID, 8, "TID"},
    {SampleField::kTime, PERF_SAMPLE_TIME, 8, "TIME"},
    {SampleField::kId, PERF_SAMPLE_ID, 8, "ID"},
    {SampleField::kStreamId, PERF_SAMPLE_STREAM_ID, 8, "STREAM_ID"},
    {SampleField::kCpu, PERF_SAMPLE_CPU, 8, "CPU"},
    {SampleField::kIdentifier, PERF_SAMPLE_IDENTIFIER, 8, "IDENTIFIER"},
};

// Every sample_type bit that the table knows. A record with other bits cannot be taken apart.
inline constexpr uint64_t kKnownSampleTypeBits = PERF_SAMPLE_MAX - 1;

inline constexpr size_t kRecordHeaderBytes = sizeof(perf_event_header);
inline constexpr size_t kBranchEntryBytes = 24;
// header.size is a u16 and records stay multiples of 8.
inline constexpr size_t kMaxRecordBytes = 65528;

// Calls visit(SampleField) for each field of a sample with this sample_type, in file order. The
// visitor returns false to stop; so does the function.
template <class Visitor>
constexpr bool for_each_sample_field(uint64_t sample_type, Visitor&& visit) {
  for (const SampleFieldInfo& info : kSampleFields) {
    if ((sample_type & info.sample_type_bits) != 0 && !visit(info.field)) return false;
  }
  return true;
}

template <class Visitor>
constexpr bool for_each_trailer_field(uint64_t sample_type, Visitor&& visit) {
  for (const SampleFieldInfo& info : kTrailerFields) {
    if ((sample_type & info.sample_type_bits) != 0 && !visit(info.field)) return false;
  }
  return true;
}

// Bytes of the fields of fixed size, without the record header.
constexpr size_t sample_fixed_bytes(uint64_t sample_type) {
  size_t bytes = 0;
  for (const SampleFieldInfo& info : kSampleFields) {
    if ((sample_type & info.sample_type_bits) != 0) bytes += info.fixed_bytes;
  }
  return bytes;
}

constexpr size_t trailer_bytes(uint64_t sample_type, bool sample_id_all) {
  size_t bytes = 0;
  if (!sample_id_all) return bytes;
  for (const SampleFieldInfo& info : kTrailerFields) {
    if ((sample_type & info.sample_type_bits) != 0) bytes += info.fixed_bytes;
  }
  return bytes;
}

inline constexpr size_t kNoOffset = static_cast<size_t>(-1);

// Offset of a fixed-size field from the start of the record (header included), or kNoOffset if the
// sample has no such field or something of variable size stands before it.
constexpr size_t sample_field_offset(uint64_t sample_type, SampleField field) {
  size_t offset = kRecordHeaderBytes;
  for (const SampleFieldInfo& info : kSampleFields) {
    const bool there = (sample_type & info.sample_type_bits) != 0;
    if (info.field == field) return there ? offset : kNoOffset;
    if (!there) continue;
    if (info.fixed_bytes == 0) return kNoOffset;
    offset += info.fixed_bytes;
  }
  return kNoOffset;
}

// Offset of a trailer field back from the end of the record, or kNoOffset.
constexpr size_t trailer_field_offset_from_end(uint64_t sample_type, SampleField field) {
  size_t after = 0;
  bool found = false;
  for (const SampleFieldInfo& info : kTrailerFields) {
    if ((sample_type & info.sample_type_bits) == 0) continue;
    if (info.field == field) found = true;
    if (found) after += info.fixed_bytes;
  }
  return found ? after : kNoOffset;
}

// The most AUX bytes that fit into a sample whose other fields, record header included, take
// `used_bytes`: the AUX field itself needs 8 for its size. Computed in size_t: in u16 a full record
// would wrap.
constexpr size_t largest_aux_bytes(size_t used_bytes, size_t requested_bytes) {
  constexpr size_t kLimit = 65535;
  if (used_bytes + 8 > kLimit) return 0;
  const size_t room = kLimit - used_bytes - 8;
  return (requested_bytes < room ? requested_bytes : room) & ~size_t{7};
}

// PERF_SAMPLE_READ: a single value, or with PERF_FORMAT_GROUP one per member of the group.
constexpr size_t read_value_words(uint64_t read_format) {
  return size_t{1} + ((read_format & PERF_FORMAT_ID) != 0) +
         ((read_format & PERF_FORMAT_LOST) != 0);
}
constexpr size_t read_bytes(uint64_t read_format, size_t group_members) {
  const size_t times = size_t{(read_format & PERF_FORMAT_TOTAL_TIME_ENABLED) != 0} +
                       size_t{(read_format & PERF_FORMAT_TOTAL_TIME_RUNNING) != 0};
  if ((read_format & PERF_FORMAT_GROUP) == 0) return 8 * (times + read_value_words(read_format));
  return 8 * (1 + times + group_members * read_value_words(read_format));
}

constexpr const char* sample_field_name(SampleField field) {
  for (const SampleFieldInfo& info : kSampleFields) {
    if (info.field == field) return info.name;
  }
  return "?";
}

}  // namespace auxtrail::abi
