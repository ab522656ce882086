#include "abi/side_band.h"

#include <sys/mman.h>

#include <algorithm>
#include <initializer_list>

#include "base/bytes.h"

namespace auxtrail::abi {
namespace {

// Checks the type, parses the trailer into `id` and leaves the bytes between header and trailer in
// `body`.
ParseStatus open_record(const Record& record, const SampleFormat& format,
                        std::initializer_list<uint32_t> types, SampleId& id,
                        std::span<const std::byte>& body) {
  if (std::find(types.begin(), types.end(), record.type) == types.end()) {
    return ParseStatus::kWrongType;
  }
  const ParseStatus status = parse_trailer(record, format, id);
  if (status != ParseStatus::kOk) return status;
  const auto whole = record.body();
  body = whole.first(whole.size() - trailer_bytes(format.sample_type, format.sample_id_all));
  return ParseStatus::kOk;
}

ParseStatus done(const ByteReader& reader) {
  return reader.failed() ? ParseStatus::kShort : ParseStatus::kOk;
}

void read_mmap2_fields(ByteReader& reader, MmapRecord& out) {
  constexpr size_t kMaxBuildIdBytes = 20;
  const auto identity = reader.take(24);  // device and inode, or the build id
  ByteReader part(identity);
  if ((out.misc & PERF_RECORD_MISC_MMAP_BUILD_ID) != 0) {
    const size_t size = part.u8();
    part.skip(3);
    out.build_id = part.take(std::min(size, kMaxBuildIdBytes));
  } else {
    out.device_major = part.u32();
    out.device_minor = part.u32();
    out.inode = part.u64();
    out.inode_generation = part.u64();
  }
  out.protection = reader.u32();
  out.flags = reader.u32();
}

}  // namespace

bool MmapRecord::executable() const { return (protection & PROT_EXEC) != 0; }

ParseStatus parse(const Record& record, const SampleFormat& format, MmapRecord& out) {
  out = MmapRecord{};
  std::span<const std::byte> body;
  const auto status =
      open_record(record, format, {PERF_RECORD_MMAP, PERF_RECORD_MMAP2}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  out.misc = record.misc;
  out.pid = reader.u32();
  out.tid = reader.u32();
  out.address = reader.u64();
  out.size_bytes = reader.u64();
  out.file_offset = reader.u64();
  if (record.type == PERF_RECORD_MMAP2) {
    read_mmap2_fields(reader, out);
  } else {
    out.protection =
        (record.misc & PERF_RECORD_MISC_MMAP_DATA) != 0 ? PROT_READ : PROT_READ | PROT_EXEC;
  }
  out.path = reader.text(reader.remaining());
  return done(reader);
}

ParseStatus parse(const Record& record, const SampleFormat& format, CommRecord& out) {
  out = CommRecord{};
  std::span<const std::byte> body;
  const auto status = open_record(record, format, {PERF_RECORD_COMM}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  out.exec = (record.misc & PERF_RECORD_MISC_COMM_EXEC) != 0;
  out.pid = reader.u32();
  out.tid = reader.u32();
  out.name = reader.text(reader.remaining());
  return done(reader);
}

ParseStatus parse(const Record& record, const SampleFormat& format, TaskRecord& out) {
  out = TaskRecord{};
  std::span<const std::byte> body;
  const auto status =
      open_record(record, format, {PERF_RECORD_FORK, PERF_RECORD_EXIT}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  out.pid = reader.u32();
  out.parent_pid = reader.u32();
  out.tid = reader.u32();
  out.parent_tid = reader.u32();
  out.time_ns = reader.u64();
  return done(reader);
}

ParseStatus parse(const Record& record, const SampleFormat& format, LostRecord& out) {
  out = LostRecord{};
  std::span<const std::byte> body;
  const auto status =
      open_record(record, format, {PERF_RECORD_LOST, PERF_RECORD_LOST_SAMPLES}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  if (record.type == PERF_RECORD_LOST) out.event_id = reader.u64();
  out.lost = reader.u64();
  return done(reader);
}

ParseStatus parse(const Record& record, const SampleFormat& format, ThrottleRecord& out) {
  out = ThrottleRecord{};
  std::span<const std::byte> body;
  const auto status =
      open_record(record, format, {PERF_RECORD_THROTTLE, PERF_RECORD_UNTHROTTLE}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  out.time_ns = reader.u64();
  out.event_id = reader.u64();
  out.stream_id = reader.u64();
  return done(reader);
}

ParseStatus parse(const Record& record, const SampleFormat& format, ReadRecord& out) {
  out = ReadRecord{};
  std::span<const std::byte> body;
  const auto status = open_record(record, format, {PERF_RECORD_READ}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  out.pid = reader.u32();
  out.tid = reader.u32();
  if (reader.failed()) return ParseStatus::kShort;
  auto rest = body.subspan(reader.offset());
  return out.values.parse(rest, format.read_format) ? ParseStatus::kOk : ParseStatus::kShort;
}

ParseStatus parse(const Record& record, const SampleFormat& format, AuxRecord& out) {
  out = AuxRecord{};
  std::span<const std::byte> body;
  const auto status = open_record(record, format, {PERF_RECORD_AUX}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  out.aux_offset = reader.u64();
  out.aux_size_bytes = reader.u64();
  out.flags = reader.u64();
  return done(reader);
}

ParseStatus parse(const Record& record, const SampleFormat& format, ItraceStartRecord& out) {
  out = ItraceStartRecord{};
  std::span<const std::byte> body;
  const auto status = open_record(record, format, {PERF_RECORD_ITRACE_START}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  out.pid = reader.u32();
  out.tid = reader.u32();
  return done(reader);
}

ParseStatus parse(const Record& record, const SampleFormat& format, SwitchRecord& out) {
  out = SwitchRecord{};
  std::span<const std::byte> body;
  const auto status =
      open_record(record, format, {PERF_RECORD_SWITCH, PERF_RECORD_SWITCH_CPU_WIDE}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  out.out = (record.misc & PERF_RECORD_MISC_SWITCH_OUT) != 0;
  out.preempted = (record.misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT) != 0;
  if (record.type == PERF_RECORD_SWITCH) return ParseStatus::kOk;
  ByteReader reader(body);
  out.other_pid = reader.u32();
  out.other_tid = reader.u32();
  return done(reader);
}

ParseStatus parse(const Record& record, const SampleFormat& format, NamespacesRecord& out) {
  out = NamespacesRecord{};
  std::span<const std::byte> body;
  const auto status = open_record(record, format, {PERF_RECORD_NAMESPACES}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  out.pid = reader.u32();
  out.tid = reader.u32();
  const uint64_t count = reader.u64();
  if (count > reader.remaining() / sizeof(perf_ns_link_info)) return ParseStatus::kShort;
  out.links = PackedArray<perf_ns_link_info>(
      reader.take(static_cast<size_t>(count) * sizeof(perf_ns_link_info)));
  return done(reader);
}

ParseStatus parse(const Record& record, const SampleFormat& format, KsymbolRecord& out) {
  out = KsymbolRecord{};
  std::span<const std::byte> body;
  const auto status = open_record(record, format, {PERF_RECORD_KSYMBOL}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  out.address = reader.u64();
  out.size_bytes = reader.u32();
  out.symbol_type = reader.u16();
  out.flags = reader.u16();
  out.name = reader.text(reader.remaining());
  return done(reader);
}

ParseStatus parse(const Record& record, const SampleFormat& format, BpfRecord& out) {
  constexpr size_t kTagBytes = 8;
  out = BpfRecord{};
  std::span<const std::byte> body;
  const auto status = open_record(record, format, {PERF_RECORD_BPF_EVENT}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  out.event = reader.u16();
  out.flags = reader.u16();
  out.program_id = reader.u32();
  out.tag = reader.take(kTagBytes);
  return done(reader);
}

ParseStatus parse(const Record& record, const SampleFormat& format, CgroupRecord& out) {
  out = CgroupRecord{};
  std::span<const std::byte> body;
  const auto status = open_record(record, format, {PERF_RECORD_CGROUP}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  out.cgroup = reader.u64();
  out.path = reader.text(reader.remaining());
  return done(reader);
}

ParseStatus parse(const Record& record, const SampleFormat& format, TextPokeRecord& out) {
  out = TextPokeRecord{};
  std::span<const std::byte> body;
  const auto status = open_record(record, format, {PERF_RECORD_TEXT_POKE}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  out.address = reader.u64();
  const size_t old_size = reader.u16();
  const size_t new_size = reader.u16();
  out.old_bytes = reader.take(old_size);
  out.new_bytes = reader.take(new_size);
  return done(reader);
}

ParseStatus parse(const Record& record, const SampleFormat& format, AuxHwIdRecord& out) {
  out = AuxHwIdRecord{};
  std::span<const std::byte> body;
  const auto status = open_record(record, format, {PERF_RECORD_AUX_OUTPUT_HW_ID}, out.id, body);
  if (status != ParseStatus::kOk) return status;
  ByteReader reader(body);
  out.hardware_id = reader.u64();
  return done(reader);
}

}  // namespace auxtrail::abi
