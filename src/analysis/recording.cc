// Loading the side-band of a perf.data file.
#include "analysis/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "abi/attr.h"
#include "abi/side_band.h"

namespace auxtrail::analysis {
namespace {

image::BuildId to_build_id(std::span<const std::byte> bytes) {
  const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
  return {first, first + bytes.size()};
}

void load_mapping(perfdata::Reader& reader, const perfdata::DataRecord& record,
                  image::AddressSpaces& spaces) {
  abi::MmapRecord mmap;
  if (!reader.parse(record, mmap) || !mmap.executable()) return;
  spaces.add_mapping(static_cast<int32_t>(mmap.pid), record.time_ns, mmap.address, mmap.size_bytes,
                     mmap.file_offset, mmap.path, to_build_id(mmap.build_id));
}

void load_comm(perfdata::Reader& reader, const perfdata::DataRecord& record,
               image::AddressSpaces& spaces, std::map<int32_t, int32_t>& pids) {
  abi::CommRecord comm;
  if (!reader.parse(record, comm)) return;
  pids[static_cast<int32_t>(comm.tid)] = static_cast<int32_t>(comm.pid);
  spaces.add_comm(static_cast<int32_t>(comm.pid), static_cast<int32_t>(comm.tid), record.time_ns,
                  comm.name, comm.exec);
}

void load_task(perfdata::Reader& reader, const perfdata::DataRecord& record,
               image::AddressSpaces& spaces, std::map<int32_t, int32_t>& pids) {
  abi::TaskRecord task;
  if (!reader.parse(record, task)) return;
  pids[static_cast<int32_t>(task.tid)] = static_cast<int32_t>(task.pid);
  if (record.record.type == PERF_RECORD_FORK) {
    spaces.add_fork(static_cast<int32_t>(task.pid), static_cast<int32_t>(task.tid),
                    static_cast<int32_t>(task.parent_pid), static_cast<int32_t>(task.parent_tid),
                    record.time_ns);
  } else {
    spaces.add_exit(static_cast<int32_t>(task.pid), static_cast<int32_t>(task.tid), record.time_ns);
  }
}

}  // namespace

Recording::Recording(perfdata::Reader reader, image::DsoOptions options)
    : reader_(std::move(reader)),
      dsos_(std::make_unique<image::DsoTable>(std::move(options))),
      spaces_(std::make_unique<image::AddressSpaces>(*dsos_)),
      symbolizer_(std::make_unique<image::Symbolizer>(*dsos_)) {
  load_side_band();
}

Result<Recording> Recording::open(const std::string& path, image::DsoOptions options) {
  AUXTRAIL_ASSIGN(auto reader, perfdata::Reader::open(path));
  return Recording(std::move(reader), std::move(options));
}

Result<Recording> Recording::from_bytes(std::span<const std::byte> bytes, const std::string& name,
                                        image::DsoOptions options) {
  AUXTRAIL_ASSIGN(auto reader, perfdata::Reader::from_bytes(bytes, name));
  return Recording(std::move(reader), std::move(options));
}

void Recording::load_side_band() {
  for (const perfdata::BuildId& known : reader_.features().build_ids) {
    dsos_->set_build_id(known.path, to_build_id(known.id));
  }
  reader_.for_each([this](const perfdata::DataRecord& record) {
    load_record(record);
    return true;
  });
  for (auto& [cpu, switches] : switches_) {
    std::stable_sort(switches.begin(), switches.end(),
                     [](const CpuSwitch& a, const CpuSwitch& b) { return a.time_ns < b.time_ns; });
  }
}

void Recording::load_record(const perfdata::DataRecord& record) {
  switch (record.record.type) {
    case PERF_RECORD_MMAP:
    case PERF_RECORD_MMAP2:
      return load_mapping(reader_, record, *spaces_);
    case PERF_RECORD_COMM:
      return load_comm(reader_, record, *spaces_, pids_);
    case PERF_RECORD_FORK:
    case PERF_RECORD_EXIT:
      return load_task(reader_, record, *spaces_, pids_);
    case PERF_RECORD_ITRACE_START:
      return load_start(record);
    case PERF_RECORD_SWITCH:
    case PERF_RECORD_SWITCH_CPU_WIDE:
      return load_switch(record);
    default:
      return;
  }
}

void Recording::load_start(const perfdata::DataRecord& record) {
  abi::ItraceStartRecord start;
  if (!reader_.parse(record, start)) return;
  const auto pid = static_cast<int32_t>(start.pid);
  const auto tid = static_cast<int32_t>(start.tid);
  pids_[tid] = pid;
  if (start.id.has(PERF_SAMPLE_CPU)) {
    switches_[static_cast<int32_t>(start.id.cpu)].push_back({record.time_ns, pid, tid});
  }
}

void Recording::load_switch(const perfdata::DataRecord& record) {
  abi::SwitchRecord change;
  if (!reader_.parse(record, change) || change.out || !change.id.has(PERF_SAMPLE_CPU)) return;
  const auto pid = static_cast<int32_t>(change.id.pid);
  const auto tid = static_cast<int32_t>(change.id.tid);
  switches_[static_cast<int32_t>(change.id.cpu)].push_back({record.time_ns, pid, tid});
}

int32_t Recording::pid_of(int32_t tid) const {
  const auto found = pids_.find(tid);
  return found == pids_.end() ? tid : found->second;
}

const std::vector<CpuSwitch>& Recording::switches(int32_t cpu) const {
  static const std::vector<CpuSwitch> kNone;
  const auto found = switches_.find(cpu);
  return found == switches_.end() ? kNone : found->second;
}

bool Recording::by_software_unit() const {
  constexpr std::string_view kOurVersion = "auxtrail";
  return std::string_view(reader_.features().version).starts_with(kOurVersion);
}

bool Recording::in_windows() const {
  if (!by_software_unit()) return false;
  const auto& events = reader_.events();
  return std::none_of(events.begin(), events.end(), [](const perfdata::Event& event) {
    return event.name == abi::kFatalSignalEvent;
  });
}

decode::TraceConfig Recording::trace_config() {
  decode::TraceConfig config;
  const perfdata::Features& features = reader_.features();
  if (by_software_unit()) return config;
  unsigned family = 0;
  unsigned model = 0;
  unsigned stepping = 0;
  if (std::sscanf(features.cpuid.c_str(), "GenuineIntel,%u,%u,%u", &family, &model, &stepping) !=
      3) {
    return config;
  }
  config.intel_cpu = true;
  config.family = static_cast<uint16_t>(family);
  config.model = static_cast<uint8_t>(model);
  config.stepping = static_cast<uint8_t>(stepping);
  return config;
}

std::string Recording::comm(uint32_t pid, uint32_t tid, uint64_t time_ns) {
  const std::string_view known =
      spaces_->comm(static_cast<int32_t>(pid), static_cast<int32_t>(tid), time_ns);
  return known.empty() ? fmt::format(":{}", tid) : std::string(known);
}

}  // namespace auxtrail::analysis
