#include "perfdata/features.h"

#include <algorithm>
#include <array>

#include "abi/attr.h"
#include "base/bytes.h"

namespace auxtrail::perfdata {
namespace {

constexpr size_t kTextAlignment = 64;  // perf's NAME_ALIGN
constexpr size_t kBuildIdBytes = 20;

constexpr std::array<std::string_view, 32> kNames = {"",
                                                     "TRACING_DATA",
                                                     "BUILD_ID",
                                                     "HOSTNAME",
                                                     "OSRELEASE",
                                                     "VERSION",
                                                     "ARCH",
                                                     "NRCPUS",
                                                     "CPUDESC",
                                                     "CPUID",
                                                     "TOTAL_MEM",
                                                     "CMDLINE",
                                                     "EVENT_DESC",
                                                     "CPU_TOPOLOGY",
                                                     "NUMA_TOPOLOGY",
                                                     "BRANCH_STACK",
                                                     "PMU_MAPPINGS",
                                                     "GROUP_DESC",
                                                     "AUXTRACE",
                                                     "STAT",
                                                     "CACHE",
                                                     "SAMPLE_TIME",
                                                     "MEM_TOPOLOGY",
                                                     "CLOCKID",
                                                     "DIR_FORMAT",
                                                     "BPF_PROG_INFO",
                                                     "BPF_BTF",
                                                     "COMPRESSED",
                                                     "CPU_PMU_CAPS",
                                                     "CLOCK_DATA",
                                                     "HYBRID_TOPOLOGY",
                                                     "PMU_CAPS"};

// {u32 size, bytes}: NUL-ended and padded to 64.
void put_text(ByteWriter& out, std::string_view text) {
  const size_t size = (text.size() + 1 + kTextAlignment - 1) / kTextAlignment * kTextAlignment;
  out.u32(static_cast<uint32_t>(size));
  out.append(std::as_bytes(std::span(text.data(), text.size())));
  for (size_t at = text.size(); at < size; ++at) out.u8(0);
}

std::string get_text(ByteReader& in) {
  const size_t size = in.u32();
  return std::string(in.text(size));
}

std::vector<std::byte> encode_text(std::string_view text) {
  ByteWriter out;
  if (!text.empty()) put_text(out, text);
  return out.buffer();
}

std::vector<std::byte> encode_command_line(const std::vector<std::string>& words) {
  ByteWriter out;
  if (words.empty()) return {};
  out.u32(static_cast<uint32_t>(words.size()));
  for (const std::string& word : words) put_text(out, word);
  return out.buffer();
}

std::vector<std::byte> encode_events(const std::vector<Event>& events) {
  ByteWriter out;
  if (events.empty()) return {};
  out.u32(static_cast<uint32_t>(events.size()));
  out.u32(sizeof(perf_event_attr));
  for (const Event& event : events) {
    perf_event_attr attr = event.attr;
    attr.size = sizeof(attr);
    out.write(attr);
    out.u32(static_cast<uint32_t>(event.ids.size()));
    put_text(out, event.name);
    for (const uint64_t id : event.ids) out.u64(id);
  }
  return out.buffer();
}

std::vector<std::byte> encode_pmus(const std::vector<PmuMapping>& pmus) {
  ByteWriter out;
  if (pmus.empty()) return {};
  out.u32(static_cast<uint32_t>(pmus.size()));
  for (const PmuMapping& pmu : pmus) {
    out.u32(pmu.type);
    put_text(out, pmu.name);
  }
  return out.buffer();
}

std::vector<std::byte> encode_groups(const std::vector<Group>& groups) {
  ByteWriter out;
  if (groups.empty()) return {};
  out.u32(static_cast<uint32_t>(groups.size()));
  for (const Group& group : groups) {
    put_text(out, group.name);
    out.u32(group.leader_index);
    out.u32(group.members);
  }
  return out.buffer();
}

// Each entry is a record of its own: {u32 type 0, u16 misc, u16 size}, pid, id, id size, path.
std::vector<std::byte> encode_build_ids(const std::vector<BuildId>& build_ids) {
  constexpr uint16_t kSizeGiven = 1 << 15;  // PERF_RECORD_MISC_BUILD_ID_SIZE
  ByteWriter out;
  for (const BuildId& entry : build_ids) {
    if (entry.id.empty() || entry.id.size() > kBuildIdBytes) continue;
    const size_t path_size =
        (entry.path.size() + 1 + kTextAlignment - 1) / kTextAlignment * kTextAlignment;
    const size_t size = sizeof(perf_event_header) + sizeof(int32_t) + 24 + path_size;
    if (size > UINT16_MAX) continue;
    out.write(perf_event_header{0, static_cast<uint16_t>(entry.misc | kSizeGiven),
                                static_cast<uint16_t>(size)});
    out.write(entry.pid);
    out.append(entry.id);
    for (size_t at = entry.id.size(); at < kBuildIdBytes; ++at) out.u8(0);
    out.u32(static_cast<uint32_t>(entry.id.size()));  // u8 size, three zeros
    out.append(std::as_bytes(std::span(entry.path.data(), entry.path.size())));
    for (size_t at = entry.path.size(); at < path_size; ++at) out.u8(0);
  }
  return out.buffer();
}

std::vector<std::byte> encode_auxtrace(const std::vector<AuxtraceIndexEntry>& index) {
  ByteWriter out;
  out.u64(index.size());
  for (const AuxtraceIndexEntry& entry : index) {
    out.u64(entry.file_offset);
    out.u64(entry.size_bytes);
  }
  return out.buffer();
}

std::vector<std::byte> encode_numbers(const Features& features, Feature feature) {
  ByteWriter out;
  switch (feature) {
    case Feature::kNrCpus:
      if (!features.cpus) break;
      out.u32(features.cpus->first);
      out.u32(features.cpus->second);
      break;
    case Feature::kTotalMem:
      if (features.total_memory_kib) out.u64(*features.total_memory_kib);
      break;
    case Feature::kSampleTime:
      if (!features.sample_time_ns) break;
      out.u64(features.sample_time_ns->first);
      out.u64(features.sample_time_ns->second);
      break;
    case Feature::kClockId:
      if (features.clock_resolution_ns) out.u64(*features.clock_resolution_ns);
      break;
    case Feature::kClockData:
      if (!features.clock_data) break;
      out.u32(1);  // version
      out.u32(features.clock_data->clockid);
      out.u64(features.clock_data->wall_clock_ns);
      out.u64(features.clock_data->clock_ns);
      break;
    default:
      break;
  }
  return out.buffer();
}

bool decode_text(ByteReader& in, std::string& text) {
  text = get_text(in);
  return !in.failed();
}

bool decode_command_line(ByteReader& in, Features& features) {
  const uint32_t count = in.u32();
  for (uint32_t at = 0; at < count && !in.failed(); ++at) {
    features.command_line.push_back(get_text(in));
  }
  return !in.failed();
}

bool decode_events(ByteReader& in, Features& features) {
  const uint32_t count = in.u32();
  const size_t attr_size = in.u32();
  for (uint32_t at = 0; at < count && !in.failed(); ++at) {
    Event event;
    const auto attr = abi::read_attr(in.take(attr_size));
    if (!attr) return false;
    event.attr = *attr;
    event.format = abi::SampleFormat::from_attr(*attr);
    const size_t ids = in.u32();
    event.name = get_text(in);
    if (ids > in.remaining() / sizeof(uint64_t)) return false;
    for (size_t id = 0; id < ids; ++id) event.ids.push_back(in.u64());
    if (!in.failed()) features.event_descriptions.push_back(std::move(event));
  }
  return !in.failed();
}

bool decode_pmus(ByteReader& in, Features& features) {
  const uint32_t count = in.u32();
  for (uint32_t at = 0; at < count && !in.failed(); ++at) {
    PmuMapping pmu;
    pmu.type = in.u32();
    pmu.name = get_text(in);
    if (!in.failed()) features.pmus.push_back(std::move(pmu));
  }
  return !in.failed();
}

bool decode_groups(ByteReader& in, Features& features) {
  const uint32_t count = in.u32();
  for (uint32_t at = 0; at < count && !in.failed(); ++at) {
    Group group;
    group.name = get_text(in);
    group.leader_index = in.u32();
    group.members = in.u32();
    if (!in.failed()) features.groups.push_back(std::move(group));
  }
  return !in.failed();
}

bool decode_build_ids(std::span<const std::byte> payload, Features& features) {
  constexpr uint16_t kSizeGiven = 1 << 15;
  while (!payload.empty()) {
    abi::Record record;
    if (first_record(payload, record) != abi::RecordStatus::kOk) return false;
    payload = payload.subspan(record.bytes.size());
    ByteReader in(record.body());
    BuildId entry;
    entry.misc = record.misc & static_cast<uint16_t>(~kSizeGiven);
    entry.pid = in.read<int32_t>();
    const auto id = in.take(kBuildIdBytes);
    const size_t size = in.u32() & 0xff;  // older files have padding there: all 20 bytes count
    if (in.failed()) return false;
    const bool given = (record.misc & kSizeGiven) != 0 && size > 0 && size <= kBuildIdBytes;
    const auto used = id.first(given ? size : kBuildIdBytes);
    entry.id.assign(used.begin(), used.end());
    entry.path = in.text(in.remaining());
    features.build_ids.push_back(std::move(entry));
  }
  return true;
}

bool decode_auxtrace(ByteReader& in, Features& features) {
  const uint64_t count = in.u64();
  if (count > in.remaining() / sizeof(AuxtraceIndexEntry)) return false;
  for (uint64_t at = 0; at < count; ++at) {
    AuxtraceIndexEntry entry;
    entry.file_offset = in.u64();
    entry.size_bytes = in.u64();
    features.auxtrace_index.push_back(entry);
  }
  return !in.failed();
}

bool decode_clock_data(ByteReader& in, Features& features) {
  if (in.u32() != 1) return false;
  ClockData data;
  data.clockid = in.u32();
  data.wall_clock_ns = in.u64();
  data.clock_ns = in.u64();
  if (!in.failed()) features.clock_data = data;
  return !in.failed();
}

template <class First, class Second>
bool decode_pair(ByteReader& in, std::optional<std::pair<First, Second>>& out) {
  const auto first = in.read<First>();
  const auto second = in.read<Second>();
  if (!in.failed()) out = {first, second};
  return !in.failed();
}

bool decode_u64(ByteReader& in, std::optional<uint64_t>& out) {
  const uint64_t value = in.u64();
  if (!in.failed()) out = value;
  return !in.failed();
}

enum class Decoded : uint8_t { kGood, kBad, kUnknown };

Decoded decode_known(Feature feature, std::span<const std::byte> payload, Features& features) {
  ByteReader in(payload);
  const auto result = [](bool good) { return good ? Decoded::kGood : Decoded::kBad; };
  switch (feature) {
    case Feature::kBuildId:
      return result(decode_build_ids(payload, features));
    case Feature::kHostname:
      return result(decode_text(in, features.hostname));
    case Feature::kOsRelease:
      return result(decode_text(in, features.os_release));
    case Feature::kVersion:
      return result(decode_text(in, features.version));
    case Feature::kArch:
      return result(decode_text(in, features.arch));
    case Feature::kCpuDesc:
      return result(decode_text(in, features.cpu_description));
    case Feature::kCpuId:
      return result(decode_text(in, features.cpuid));
    case Feature::kNrCpus:
      return result(decode_pair(in, features.cpus));
    case Feature::kTotalMem:
      return result(decode_u64(in, features.total_memory_kib));
    case Feature::kCmdline:
      return result(decode_command_line(in, features));
    case Feature::kEventDesc:
      return result(decode_events(in, features));
    case Feature::kPmuMappings:
      return result(decode_pmus(in, features));
    case Feature::kGroupDesc:
      return result(decode_groups(in, features));
    case Feature::kAuxtrace:
      return result(decode_auxtrace(in, features));
    case Feature::kSampleTime:
      return result(decode_pair(in, features.sample_time_ns));
    case Feature::kClockId:
      return result(decode_u64(in, features.clock_resolution_ns));
    case Feature::kClockData:
      return result(decode_clock_data(in, features));
    case Feature::kBranchStack:
      features.branch_stacks = true;
      return Decoded::kGood;
    default:
      return Decoded::kUnknown;
  }
}

}  // namespace

std::string_view feature_name(uint32_t feature) {
  if (feature == 0 || feature >= kNames.size()) return "FEATURE";
  return kNames[feature];
}

std::vector<std::byte> encode_feature(const Features& features, Feature feature) {
  switch (feature) {
    case Feature::kBuildId:
      return encode_build_ids(features.build_ids);
    case Feature::kHostname:
      return encode_text(features.hostname);
    case Feature::kOsRelease:
      return encode_text(features.os_release);
    case Feature::kVersion:
      return encode_text(features.version);
    case Feature::kArch:
      return encode_text(features.arch);
    case Feature::kCpuDesc:
      return encode_text(features.cpu_description);
    case Feature::kCpuId:
      return encode_text(features.cpuid);
    case Feature::kCmdline:
      return encode_command_line(features.command_line);
    case Feature::kEventDesc:
      return encode_events(features.event_descriptions);
    case Feature::kPmuMappings:
      return encode_pmus(features.pmus);
    case Feature::kGroupDesc:
      return encode_groups(features.groups);
    case Feature::kAuxtrace:
      return encode_auxtrace(features.auxtrace_index);
    default:
      return encode_numbers(features, feature);
  }
}

bool decode_feature(uint32_t feature, std::span<const std::byte> payload, Features& features) {
  const Decoded decoded = decode_known(static_cast<Feature>(feature), payload, features);
  if (decoded == Decoded::kGood) features.present |= uint64_t{1} << feature;
  return decoded != Decoded::kBad;
}

}  // namespace auxtrail::perfdata
