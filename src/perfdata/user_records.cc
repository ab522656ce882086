#include "perfdata/user_records.h"

#include <algorithm>
#include <array>

namespace auxtrail::perfdata {
namespace {

constexpr size_t kMinIntelPtWords = 10;
constexpr size_t kMaxIdIndexEntries = (UINT16_MAX - 16) / 32;
constexpr size_t kCommBytes = 16;

void put_header(ByteWriter& out, uint32_t type, size_t body_bytes) {
  out.write(
      perf_event_header{type, 0, static_cast<uint16_t>(sizeof(perf_event_header) + body_bytes)});
}

// The words of an Intel PT AUXTRACE_INFO before the filter, in file order.
std::array<uint64_t IntelPtInfo::*, 16> intel_pt_words() {
  using Info = IntelPtInfo;
  return {&Info::pmu_type,
          &Info::time_shift,
          &Info::time_mult,
          &Info::time_zero,
          &Info::cap_user_time_zero,
          &Info::tsc_bit,
          &Info::noretcomp_bit,
          &Info::have_sched_switch,
          &Info::snapshot_mode,
          &Info::per_cpu_mmaps,
          &Info::mtc_bit,
          &Info::mtc_freq_bits,
          &Info::tsc_ctc_ratio_n,
          &Info::tsc_ctc_ratio_d,
          &Info::cyc_bit,
          &Info::max_nonturbo_ratio};
}

std::optional<IntelPtInfo> intel_pt_from(std::span<const uint64_t> priv) {
  if (priv.size() < kMinIntelPtWords) return std::nullopt;
  IntelPtInfo info;
  const auto words = intel_pt_words();
  for (size_t at = 0; at < words.size(); ++at) info.*words[at] = at < priv.size() ? priv[at] : 0;
  if (priv.size() > words.size()) {
    const uint64_t filter_bytes = priv[words.size()];
    const auto text = std::as_bytes(priv.subspan(words.size() + 1));
    const size_t size = std::min<uint64_t>(filter_bytes, text.size());
    const auto* chars = reinterpret_cast<const char*>(text.data());
    info.filter.assign(chars, size == 0 ? 0 : ::strnlen(chars, size));
  }
  return info;
}

}  // namespace

void append_intel_pt_info(ByteWriter& out, const IntelPtInfo& info) {
  // The length counts neither the NUL nor the padding behind it.
  const std::string_view filter = std::string_view(info.filter).substr(0, 32768);
  const size_t filter_bytes = filter.empty() ? 0 : (filter.size() + 1 + 7) / 8 * 8;
  const auto words = intel_pt_words();
  put_header(out, abi::kRecordAuxtraceInfo, 8 + 8 * (words.size() + 1) + filter_bytes);
  out.u32(kAuxtraceTypeIntelPt);
  out.u32(0);
  for (const auto word : words) out.u64(info.*word);
  out.u64(filter.size());
  out.append(std::as_bytes(std::span(filter.data(), filter.size())));
  for (size_t at = filter.size(); at < filter_bytes; ++at) out.u8(0);
}

void append_auxtrace(ByteWriter& out, const AuxtraceRecord& auxtrace) {
  put_header(out, abi::kRecordAuxtrace, 40);
  out.u64(auxtrace.size_bytes);
  out.u64(auxtrace.offset);
  out.u64(auxtrace.reference);
  out.u32(auxtrace.index);
  out.u32(auxtrace.tid);
  out.u32(auxtrace.cpu);
  out.u32(0);
}

void append_id_index(ByteWriter& out, std::span<const IdIndexEntry> entries) {
  while (!entries.empty()) {
    const auto part = entries.first(std::min(entries.size(), kMaxIdIndexEntries));
    entries = entries.subspan(part.size());
    put_header(out, abi::kRecordIdIndex, 8 + 32 * part.size());
    out.u64(part.size());
    for (const IdIndexEntry& entry : part) {
      out.u64(entry.id);
      out.u64(entry.queue_index);
      out.write(entry.cpu);
      out.write(entry.tid);
    }
  }
}

void append_time_conv(ByteWriter& out, const TimeConversion& conversion) {
  put_header(out, abi::kRecordTimeConv, 48);
  out.u64(conversion.time_shift);
  out.u64(conversion.time_mult);
  out.u64(conversion.time_zero);
  out.u64(conversion.time_cycles);
  out.u64(conversion.time_mask);
  out.u8(conversion.cap_user_time_zero ? 1 : 0);
  out.u8(conversion.cap_user_time_short ? 1 : 0);
  for (int at = 0; at < 6; ++at) out.u8(0);
}

void append_thread_map(ByteWriter& out, std::span<const ThreadMapEntry> threads) {
  constexpr size_t kMaxThreads = (UINT16_MAX - 16) / 24;
  threads = threads.first(std::min(threads.size(), kMaxThreads));
  put_header(out, abi::kRecordThreadMap, 8 + 24 * threads.size());
  out.u64(threads.size());
  for (const ThreadMapEntry& thread : threads) {
    out.u64(thread.tid);
    std::array<char, kCommBytes> name{};
    std::copy_n(thread.name.begin(), std::min(thread.name.size(), kCommBytes - 1), name.begin());
    out.write(name);
  }
}

void append_cpu_map(ByteWriter& out, std::span<const uint16_t> cpus) {
  constexpr size_t kMaxCpus = 32000;
  cpus = cpus.first(std::min(cpus.size(), kMaxCpus));
  const size_t body = (2 + 2 + 2 * cpus.size() + 7) / 8 * 8;
  put_header(out, abi::kRecordCpuMap, body);
  out.u16(0);  // a list of cpu numbers
  out.u16(static_cast<uint16_t>(cpus.size()));
  for (const uint16_t cpu : cpus) out.u16(cpu);
  for (size_t at = 4 + 2 * cpus.size(); at < body; ++at) out.u8(0);
}

void append_finished_init(ByteWriter& out) { put_header(out, abi::kRecordFinishedInit, 0); }

void append_finished_round(ByteWriter& out) { put_header(out, abi::kRecordFinishedRound, 0); }

std::optional<AuxtraceInfo> parse_auxtrace_info(const abi::Record& record) {
  if (record.type != abi::kRecordAuxtraceInfo) return std::nullopt;
  ByteReader in(record.body());
  AuxtraceInfo info;
  info.type = in.u32();
  in.skip(4);
  if (in.failed()) return std::nullopt;
  while (in.remaining() >= sizeof(uint64_t)) info.priv.push_back(in.u64());
  if (info.type == kAuxtraceTypeIntelPt) info.intel_pt = intel_pt_from(info.priv);
  return info;
}

std::optional<AuxtraceRecord> parse_auxtrace(const abi::Record& record) {
  if (record.type != abi::kRecordAuxtrace) return std::nullopt;
  ByteReader in(record.body());
  AuxtraceRecord auxtrace;
  auxtrace.size_bytes = in.u64();
  auxtrace.offset = in.u64();
  auxtrace.reference = in.u64();
  auxtrace.index = in.u32();
  auxtrace.tid = in.u32();
  auxtrace.cpu = in.u32();
  if (in.failed()) return std::nullopt;
  return auxtrace;
}

std::optional<AuxtraceErrorRecord> parse_auxtrace_error(const abi::Record& record) {
  constexpr size_t kMessageBytes = 64;
  if (record.type != abi::kRecordAuxtraceError) return std::nullopt;
  ByteReader in(record.body());
  AuxtraceErrorRecord error;
  error.type = in.u32();
  error.code = in.u32();
  error.cpu = in.u32();
  error.pid = in.u32();
  error.tid = in.u32();
  const uint32_t format = in.u32();
  error.ip = in.u64();
  if (format != 0) error.time_ns = in.u64();
  if (in.failed()) return std::nullopt;
  error.message = in.text(std::min(in.remaining(), kMessageBytes));
  return error;
}

std::optional<std::vector<IdIndexEntry>> parse_id_index(const abi::Record& record) {
  if (record.type != abi::kRecordIdIndex) return std::nullopt;
  ByteReader in(record.body());
  const uint64_t count = in.u64();
  if (in.failed() || count > in.remaining() / sizeof(IdIndexEntry)) return std::nullopt;
  std::vector<IdIndexEntry> entries(static_cast<size_t>(count));
  for (IdIndexEntry& entry : entries) {
    entry.id = in.u64();
    entry.queue_index = in.u64();
    entry.cpu = in.read<int64_t>();
    entry.tid = in.read<int64_t>();
  }
  return entries;
}

std::optional<TimeConversion> parse_time_conv(const abi::Record& record) {
  if (record.type != abi::kRecordTimeConv) return std::nullopt;
  ByteReader in(record.body());
  TimeConversion conversion;
  conversion.time_shift = in.u64();
  conversion.time_mult = in.u64();
  conversion.time_zero = in.u64();
  if (in.failed()) return std::nullopt;
  if (in.remaining() >= 18) {  // older records end here
    conversion.time_cycles = in.u64();
    conversion.time_mask = in.u64();
    conversion.cap_user_time_zero = in.u8() != 0;
    conversion.cap_user_time_short = in.u8() != 0;
  }
  return conversion;
}

std::optional<std::vector<ThreadMapEntry>> parse_thread_map(const abi::Record& record) {
  if (record.type != abi::kRecordThreadMap) return std::nullopt;
  ByteReader in(record.body());
  const uint64_t count = in.u64();
  if (in.failed() || count > in.remaining() / (sizeof(uint64_t) + kCommBytes)) return std::nullopt;
  std::vector<ThreadMapEntry> threads(static_cast<size_t>(count));
  for (ThreadMapEntry& thread : threads) {
    thread.tid = in.u64();
    thread.name = in.text(kCommBytes);
  }
  return threads;
}

}  // namespace auxtrail::perfdata
