// One function per kind of record; a table of types picks it.
#include "analysis/record_text.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace auxtrail::analysis {
namespace {

using perfdata::DataRecord;
using perfdata::Reader;

template <class... Args>
void put(fmt::memory_buffer& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

// Text out of a file may hold anything: control characters would spoil the line.
std::string printable(std::string_view text) {
  std::string result(text);
  std::replace_if(
      result.begin(), result.end(), [](char c) { return (c >= 0 && c < 32) || c == 127; }, '?');
  return result;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

void put_fields(const abi::MmapRecord& mmap, fmt::memory_buffer& out) {
  put(out, " pid {} tid {} {:#x}-{:#x} offset {:#x} protection {:#x} flags {:#x} {}",
      static_cast<int32_t>(mmap.pid), static_cast<int32_t>(mmap.tid), mmap.address,
      mmap.address + mmap.size_bytes, mmap.file_offset, mmap.protection, mmap.flags,
      printable(mmap.path));
  if (!mmap.build_id.empty()) put(out, " build-id {}", hex(mmap.build_id));
}

void put_fields(const abi::CommRecord& comm, fmt::memory_buffer& out) {
  put(out, " pid {} tid {} {}{}", comm.pid, comm.tid, printable(comm.name),
      comm.exec ? " (exec)" : "");
}

void put_fields(const abi::TaskRecord& task, fmt::memory_buffer& out) {
  put(out, " pid {} tid {} parent pid {} tid {}", task.pid, task.tid, task.parent_pid,
      task.parent_tid);
}

void put_fields(const abi::LostRecord& lost, fmt::memory_buffer& out) {
  put(out, " event {} lost {}", lost.event_id, lost.lost);
}

void put_fields(const abi::ThrottleRecord& throttle, fmt::memory_buffer& out) {
  put(out, " event {} stream {}", throttle.event_id, throttle.stream_id);
}

void put_fields(const abi::ReadRecord& read, fmt::memory_buffer& out) {
  put(out, " pid {} tid {}", read.pid, read.tid);
  for (size_t i = 0; i < read.values.size(); ++i) put(out, " value {}", read.values[i].value);
}

void put_fields(const abi::AuxRecord& aux, fmt::memory_buffer& out) {
  put(out, " offset {:#x} size {:#x} flags {:#x}", aux.aux_offset, aux.aux_size_bytes, aux.flags);
}

void put_fields(const abi::ItraceStartRecord& start, fmt::memory_buffer& out) {
  put(out, " pid {} tid {}", start.pid, start.tid);
}

void put_fields(const abi::SwitchRecord& change, fmt::memory_buffer& out) {
  put(out, " {}{} other pid {} tid {}", change.out ? "out" : "in",
      change.preempted ? " preempted" : "", change.other_pid, change.other_tid);
}

void put_fields(const abi::NamespacesRecord& namespaces, fmt::memory_buffer& out) {
  put(out, " pid {} tid {} namespaces {}", namespaces.pid, namespaces.tid, namespaces.links.size());
}

void put_fields(const abi::KsymbolRecord& symbol, fmt::memory_buffer& out) {
  put(out, " {:#x} size {} type {} flags {:#x} {}", symbol.address, symbol.size_bytes,
      symbol.symbol_type, symbol.flags, printable(symbol.name));
}

void put_fields(const abi::BpfRecord& bpf, fmt::memory_buffer& out) {
  put(out, " event {} flags {:#x} program {} tag {}", bpf.event, bpf.flags, bpf.program_id,
      hex(bpf.tag));
}

void put_fields(const abi::CgroupRecord& cgroup, fmt::memory_buffer& out) {
  put(out, " {} {}", cgroup.cgroup, printable(cgroup.path));
}

void put_fields(const abi::TextPokeRecord& poke, fmt::memory_buffer& out) {
  put(out, " {:#x} old {} new {}", poke.address, hex(poke.old_bytes), hex(poke.new_bytes));
}

void put_fields(const abi::AuxHwIdRecord& id, fmt::memory_buffer& out) {
  put(out, " {:#x}", id.hardware_id);
}

void put_id(const abi::SampleId& id, fmt::memory_buffer& out) {
  if (id.has(PERF_SAMPLE_TID)) {
    put(out, " pid {} tid {}", static_cast<int32_t>(id.pid), static_cast<int32_t>(id.tid));
  }
  if (id.has(PERF_SAMPLE_CPU)) put(out, " cpu {}", static_cast<int32_t>(id.cpu));
  if (id.has(PERF_SAMPLE_TIME)) put(out, " time {}", id.time_ns);
  if (id.has(PERF_SAMPLE_STREAM_ID)) put(out, " stream {}", id.stream_id);
  if (id.has(PERF_SAMPLE_ID) || id.has(PERF_SAMPLE_IDENTIFIER)) put(out, " id {}", id.id);
}

template <class SideBand>
bool put_side_band(Reader& reader, const DataRecord& record, fmt::memory_buffer& out) {
  SideBand parsed;
  if (!reader.parse(record, parsed)) return false;
  put_fields(parsed, out);
  if (parsed.id.fields != 0) {
    put(out, " |");
    put_id(parsed.id, out);
  }
  return true;
}

// Fields that are there but too long for a line: their sizes only.
void put_sizes(const abi::Sample& sample, const abi::SampleFormat& format,
               fmt::memory_buffer& out) {
  if (format.has(PERF_SAMPLE_CALLCHAIN)) put(out, " callchain {}", sample.callchain.size());
  if (format.has(PERF_SAMPLE_RAW)) put(out, " raw {} bytes", sample.raw.size());
  if (format.has(PERF_SAMPLE_BRANCH_STACK)) put(out, " branches {}", sample.branches.size());
  if (format.has(PERF_SAMPLE_REGS_USER)) put(out, " registers {}", sample.regs_user.values.size());
  if (format.has(PERF_SAMPLE_STACK_USER)) put(out, " stack {} bytes", sample.stack_user.size());
  if (sample.has_aux) put(out, " aux {} bytes", sample.aux.size());
}

bool put_sample(Reader& reader, const DataRecord& record, fmt::memory_buffer& out) {
  abi::Sample sample;
  if (record.event == nullptr || !reader.parse_sample(record, sample)) return false;
  const abi::SampleFormat& format = record.event->format;
  put(out, " {}", record.event->name);
  if (format.has(PERF_SAMPLE_IP)) put(out, " ip {:#x}", sample.ip);
  put_id(sample.id, out);
  if (format.has(PERF_SAMPLE_ADDR)) put(out, " addr {:#x}", sample.address);
  if (format.has(PERF_SAMPLE_PERIOD)) put(out, " period {}", sample.period);
  if (format.has(PERF_SAMPLE_WEIGHT_TYPE)) put(out, " weight {:#x}", sample.weight);
  put_sizes(sample, format, out);
  return true;
}

bool put_auxtrace_info(Reader&, const DataRecord& record, fmt::memory_buffer& out) {
  const auto info = perfdata::parse_auxtrace_info(record.record);
  if (!info) return false;
  put(out, " type {}", info->type);
  for (const uint64_t word : info->priv) put(out, " {:#x}", word);
  return true;
}

bool put_auxtrace(Reader&, const DataRecord& record, fmt::memory_buffer& out) {
  const auto auxtrace = perfdata::parse_auxtrace(record.record);
  if (!auxtrace) return false;
  put(out, " size {:#x} offset {:#x} reference {:#x} index {} tid {} cpu {}", auxtrace->size_bytes,
      auxtrace->offset, auxtrace->reference, auxtrace->index, static_cast<int32_t>(auxtrace->tid),
      static_cast<int32_t>(auxtrace->cpu));
  return true;
}

bool put_auxtrace_error(Reader&, const DataRecord& record, fmt::memory_buffer& out) {
  const auto error = perfdata::parse_auxtrace_error(record.record);
  if (!error) return false;
  put(out, " type {} code {} cpu {} pid {} tid {} ip {:#x} time {} {}", error->type, error->code,
      error->cpu, error->pid, error->tid, error->ip, error->time_ns, printable(error->message));
  return true;
}

bool put_id_index(Reader&, const DataRecord& record, fmt::memory_buffer& out) {
  const auto entries = perfdata::parse_id_index(record.record);
  if (!entries) return false;
  for (const auto& entry : *entries) {
    put(out, " (id {} queue {} cpu {} tid {})", entry.id, entry.queue_index, entry.cpu, entry.tid);
  }
  return true;
}

bool put_time_conv(Reader&, const DataRecord& record, fmt::memory_buffer& out) {
  const auto conversion = perfdata::parse_time_conv(record.record);
  if (!conversion) return false;
  put(out, " shift {} mult {} zero {}", conversion->time_shift, conversion->time_mult,
      conversion->time_zero);
  return true;
}

bool put_thread_map(Reader&, const DataRecord& record, fmt::memory_buffer& out) {
  const auto threads = perfdata::parse_thread_map(record.record);
  if (!threads) return false;
  for (const auto& thread : *threads) put(out, " {} {}", thread.tid, printable(thread.name));
  return true;
}

struct TypeText {
  uint32_t type;
  bool (*put)(Reader& reader, const DataRecord& record, fmt::memory_buffer& out);
};
constexpr TypeText kTypeTexts[] = {
    {PERF_RECORD_MMAP, put_side_band<abi::MmapRecord>},
    {PERF_RECORD_LOST, put_side_band<abi::LostRecord>},
    {PERF_RECORD_COMM, put_side_band<abi::CommRecord>},
    {PERF_RECORD_EXIT, put_side_band<abi::TaskRecord>},
    {PERF_RECORD_THROTTLE, put_side_band<abi::ThrottleRecord>},
    {PERF_RECORD_UNTHROTTLE, put_side_band<abi::ThrottleRecord>},
    {PERF_RECORD_FORK, put_side_band<abi::TaskRecord>},
    {PERF_RECORD_READ, put_side_band<abi::ReadRecord>},
    {PERF_RECORD_SAMPLE, put_sample},
    {PERF_RECORD_MMAP2, put_side_band<abi::MmapRecord>},
    {PERF_RECORD_AUX, put_side_band<abi::AuxRecord>},
    {PERF_RECORD_ITRACE_START, put_side_band<abi::ItraceStartRecord>},
    {PERF_RECORD_LOST_SAMPLES, put_side_band<abi::LostRecord>},
    {PERF_RECORD_SWITCH, put_side_band<abi::SwitchRecord>},
    {PERF_RECORD_SWITCH_CPU_WIDE, put_side_band<abi::SwitchRecord>},
    {PERF_RECORD_NAMESPACES, put_side_band<abi::NamespacesRecord>},
    {PERF_RECORD_KSYMBOL, put_side_band<abi::KsymbolRecord>},
    {PERF_RECORD_BPF_EVENT, put_side_band<abi::BpfRecord>},
    {PERF_RECORD_CGROUP, put_side_band<abi::CgroupRecord>},
    {PERF_RECORD_TEXT_POKE, put_side_band<abi::TextPokeRecord>},
    {PERF_RECORD_AUX_OUTPUT_HW_ID, put_side_band<abi::AuxHwIdRecord>},
    {abi::kRecordAuxtraceInfo, put_auxtrace_info},
    {abi::kRecordAuxtrace, put_auxtrace},
    {abi::kRecordAuxtraceError, put_auxtrace_error},
    {abi::kRecordIdIndex, put_id_index},
    {abi::kRecordTimeConv, put_time_conv},
    {abi::kRecordThreadMap, put_thread_map},
};

}  // namespace

void append_record_text(Reader& reader, const DataRecord& record, fmt::memory_buffer& out) {
  const uint32_t type = record.record.type;
  put(out, "{:#x} [{:#x}] {}", record.file_offset, record.record.bytes.size(),
      abi::record_type_name(type));
  if (!abi::is_known_record_type(type)) put(out, " {}", type);
  if (record.unpacked) put(out, " (unpacked)");
  put(out, ":");
  const auto* text = std::find_if(std::begin(kTypeTexts), std::end(kTypeTexts),
                                  [type](const TypeText& known) { return known.type == type; });
  if (text != std::end(kTypeTexts) && !text->put(reader, record, out)) put(out, " malformed");
  put(out, "\n");
}

std::span<const std::byte> trace_bytes(const DataRecord& record) {
  if (record.record.type == abi::kRecordAuxtrace) return record.payload;
  abi::Sample sample;
  if (record.record.type != PERF_RECORD_SAMPLE || record.event == nullptr ||
      abi::parse_sample(record.record, record.event->format, sample) != abi::ParseStatus::kOk) {
    return {};
  }
  return sample.aux;
}

}  // namespace auxtrail::analysis
