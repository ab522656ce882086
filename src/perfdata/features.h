// The feature sections behind the records of a perf.data file: who recorded what, where and how.
//
// One struct for writing and reading. `present` has a bit per section number: set by the reader for
// each section it found and understood; on writing, a member that is empty (or nullopt) gets no
// section. Reference: docs/formats/perf-data.md, section "Feature sections".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perfdata/event.h"

namespace auxtrail::perfdata {

enum class Feature : uint32_t {
  kTracingData = 1,
  kBuildId = 2,
  kHostname = 3,
  kOsRelease = 4,
  kVersion = 5,
  kArch = 6,
  kNrCpus = 7,
  kCpuDesc = 8,
  kCpuId = 9,
  kTotalMem = 10,
  kCmdline = 11,
  kEventDesc = 12,
  kCpuTopology = 13,
  kNumaTopology = 14,
  kBranchStack = 15,
  kPmuMappings = 16,
  kGroupDesc = 17,
  kAuxtrace = 18,
  kStat = 19,
  kCache = 20,
  kSampleTime = 21,
  kMemTopology = 22,
  kClockId = 23,
  kDirFormat = 24,
  kBpfProgInfo = 25,
  kBpfBtf = 26,
  kCompressed = 27,
  kCpuPmuCaps = 28,
  kClockData = 29,
  kHybridTopology = 30,
  kPmuCaps = 31,
};
inline constexpr uint32_t kFeatureBits = 256;
// "HOSTNAME" ...; "FEATURE" for a number without a name.
std::string_view feature_name(uint32_t feature);

struct BuildId {
  std::vector<std::byte> id;  // 1 to 20 bytes
  std::string path;
  int32_t pid = -1;   // -1: the host
  uint16_t misc = 2;  // cpu mode: 1 kernel, 2 user
};

struct PmuMapping {
  uint32_t type = 0;
  std::string name;
};

struct Group {
  std::string name;
  uint32_t leader_index = 0;  // index of the leader among the events
  uint32_t members = 0;       // leader included
};

struct ClockData {  // one moment seen by both clocks
  uint32_t clockid = 0;
  uint64_t wall_clock_ns = 0;
  uint64_t clock_ns = 0;
};

struct AuxtraceIndexEntry {  // an AUXTRACE record in the file
  uint64_t file_offset = 0;
  uint64_t size_bytes = 0;
};

struct Features {
  uint64_t present = 0;  // bit n: section n

  std::string hostname;
  std::string os_release;
  std::string version;  // of the recording tool
  std::string arch;
  std::string cpu_description;
  std::string cpuid;
  std::optional<std::pair<uint32_t, uint32_t>> cpus;  // available, online
  std::optional<uint64_t> total_memory_kib;
  std::vector<std::string> command_line;
  std::vector<Event> event_descriptions;  // EVENT_DESC; the writer fills it from its events
  std::vector<PmuMapping> pmus;
  std::vector<Group> groups;
  std::vector<BuildId> build_ids;
  std::vector<AuxtraceIndexEntry> auxtrace_index;               // the writer fills it
  std::optional<std::pair<uint64_t, uint64_t>> sample_time_ns;  // first, last sample
  std::optional<uint64_t> clock_resolution_ns;                  // CLOCKID
  std::optional<ClockData> clock_data;
  bool branch_stacks = false;  // BRANCH_STACK: samples carry branch stacks

  [[nodiscard]] bool has(Feature feature) const {
    return ((present >> static_cast<uint32_t>(feature)) & 1) != 0;
  }
};

// Fills in hostname, os_release, arch, cpus, cpu_description, cpuid, total_memory_kib, pmus of the
// machine this runs on; what cannot be found out stays empty.
void describe_this_machine(Features& features);

// The payload of one section. An empty vector: nothing to write.
std::vector<std::byte> encode_feature(const Features& features, Feature feature);

// Parses the payload of section number `feature` into `features` and sets its present bit. False if
// it is malformed (what could be read is kept, the bit stays clear). A section this code does not
// know is fine: true, and the bit stays clear.
bool decode_feature(uint32_t feature, std::span<const std::byte> payload, Features& features);

}  // namespace auxtrail::perfdata
