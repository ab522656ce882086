#include "abi/record.h"

#include <algorithm>
#include <array>

#include "base/bytes.h"

namespace auxtrail::abi {
namespace {

// Index = type. The kernel's records, then perf's from kUserRecordTypeStart on.
constexpr std::array<std::string_view, 22> kKernelNames = {"",
                                                           "MMAP",
                                                           "LOST",
                                                           "COMM",
                                                           "EXIT",
                                                           "THROTTLE",
                                                           "UNTHROTTLE",
                                                           "FORK",
                                                           "READ",
                                                           "SAMPLE",
                                                           "MMAP2",
                                                           "AUX",
                                                           "ITRACE_START",
                                                           "LOST_SAMPLES",
                                                           "SWITCH",
                                                           "SWITCH_CPU_WIDE",
                                                           "NAMESPACES",
                                                           "KSYMBOL",
                                                           "BPF_EVENT",
                                                           "CGROUP",
                                                           "TEXT_POKE",
                                                           "AUX_OUTPUT_HW_ID"};
constexpr std::array<std::string_view, 20> kUserNames = {
    "ATTR",      "EVENT_TYPE",    "TRACING_DATA", "BUILD_ID",       "FINISHED_ROUND",
    "ID_INDEX",  "AUXTRACE_INFO", "AUXTRACE",     "AUXTRACE_ERROR", "THREAD_MAP",
    "CPU_MAP",   "STAT_CONFIG",   "STAT",         "STAT_ROUND",     "EVENT_UPDATE",
    "TIME_CONV", "FEATURE",       "COMPRESSED",   "FINISHED_INIT",  "COMPRESSED2"};

}  // namespace

std::string_view record_type_name(uint32_t type) {
  constexpr std::string_view kUnknown = "UNKNOWN";
  if (type == 0) return kUnknown;
  if (type < kKernelNames.size()) return kKernelNames[type];
  if (type < kUserRecordTypeStart) return kUnknown;
  const uint32_t index = type - kUserRecordTypeStart;
  return index < kUserNames.size() ? kUserNames[index] : kUnknown;
}

bool is_known_record_type(uint32_t type) {
  return (type > 0 && type < kKernelNames.size()) ||
         (type >= kUserRecordTypeStart && type - kUserRecordTypeStart < kUserNames.size());
}

RecordStatus first_record(std::span<const std::byte> bytes, Record& record) {
  ByteReader reader(bytes);
  const auto header = reader.read<perf_event_header>();
  if (reader.failed()) return RecordStatus::kShort;
  if (header.size < sizeof(header)) return RecordStatus::kBadSize;
  if (header.size > bytes.size()) return RecordStatus::kShort;
  record = {header.type, header.misc, bytes.first(header.size)};
  return RecordStatus::kOk;
}

}  // namespace auxtrail::abi
