#include "abi/sample.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"

namespace auxtrail::abi {
namespace {

// PERF_SAMPLE_BRANCH_COUNTERS of newer kernels: one u64 of counters per entry, behind the entries.
constexpr uint64_t kBranchCounters = uint64_t{1} << 19;

// Takes `count` items of `item_bytes` each, without overflow on hostile counts.
std::span<const std::byte> take_items(ByteReader& reader, uint64_t count, size_t item_bytes) {
  if (count > reader.remaining() / item_bytes) {
    reader.skip(reader.remaining() + 1);  // marks the reader failed
    return {};
  }
  return reader.take(static_cast<size_t>(count) * item_bytes);
}

void read_registers(ByteReader& reader, uint64_t mask, Registers& out) {
  out.abi = reader.u64();
  out.mask = mask;
  if (out.abi == PERF_SAMPLE_REGS_ABI_NONE) return;
  out.values = PackedArray<uint64_t>(
      take_items(reader, static_cast<uint64_t>(std::popcount(mask)), sizeof(uint64_t)));
}

void read_raw(ByteReader& reader, Sample& sample) {
  const uint32_t size = reader.u32();
  sample.raw = take_items(reader, size, 1);
  const size_t misaligned = (sizeof(uint32_t) + size) % 8;
  if (misaligned != 0) reader.skip(std::min(size_t{8} - misaligned, reader.remaining()));
}

void read_branch_stack(ByteReader& reader, const SampleFormat& format, Sample& sample) {
  const uint64_t count = reader.u64();
  if ((format.branch_sample_type & PERF_SAMPLE_BRANCH_HW_INDEX) != 0) {
    sample.branch_hw_index = reader.u64();
  }
  sample.branches = PackedArray<BranchEntry>(take_items(reader, count, kBranchEntryBytes));
  if ((format.branch_sample_type & kBranchCounters) != 0) {
    sample.branch_counters = PackedArray<uint64_t>(take_items(reader, count, sizeof(uint64_t)));
  }
}

void read_stack(ByteReader& reader, Sample& sample) {
  const uint64_t size = reader.u64();
  if (size == 0) return;
  sample.stack_user = take_items(reader, size, 1);
  sample.stack_dynamic_bytes = std::min<uint64_t>(reader.u64(), sample.stack_user.size());
}

void read_counts(ByteReader& reader, std::span<const std::byte> body, const SampleFormat& format,
                 Sample& sample) {
  auto rest = body.subspan(reader.offset());
  const size_t before = rest.size();
  if (!sample.read.parse(rest, format.read_format)) {
    reader.skip(before + 1);
    return;
  }
  reader.skip(before - rest.size());
}

// The fields that samples and trailers share.
bool read_id_field(ByteReader& reader, SampleField field, SampleId& id) {
  switch (field) {
    case SampleField::kIdentifier:
      id.id = reader.u64();
      id.fields |= PERF_SAMPLE_IDENTIFIER;
      return true;
    case SampleField::kTid:
      id.pid = reader.u32();
      id.tid = reader.u32();
      id.fields |= PERF_SAMPLE_TID;
      return true;
    case SampleField::kTime:
      id.time_ns = reader.u64();
      id.fields |= PERF_SAMPLE_TIME;
      return true;
    case SampleField::kId: {
      const uint64_t value = reader.u64();
      if (!id.has(PERF_SAMPLE_IDENTIFIER)) id.id = value;
      id.fields |= PERF_SAMPLE_ID;
      return true;
    }
    case SampleField::kStreamId:
      id.stream_id = reader.u64();
      id.fields |= PERF_SAMPLE_STREAM_ID;
      return true;
    case SampleField::kCpu:
      id.cpu = reader.u32();
      (void)reader.u32();
      id.fields |= PERF_SAMPLE_CPU;
      return true;
    default:
      return false;
  }
}

void read_field(ByteReader& reader, std::span<const std::byte> body, SampleField field,
                const SampleFormat& format, Sample& sample) {
  if (read_id_field(reader, field, sample.id)) return;
  switch (field) {
    case SampleField::kIp:
      sample.ip = reader.u64();
      break;
    case SampleField::kAddr:
      sample.address = reader.u64();
      break;
    case SampleField::kPeriod:
      sample.period = reader.u64();
      break;
    case SampleField::kRead:
      read_counts(reader, body, format, sample);
      break;
    case SampleField::kCallchain:
      sample.callchain = PackedArray<uint64_t>(take_items(reader, reader.u64(), sizeof(uint64_t)));
      break;
    case SampleField::kRaw:
      read_raw(reader, sample);
      break;
    case SampleField::kBranchStack:
      read_branch_stack(reader, format, sample);
      break;
    case SampleField::kRegsUser:
      read_registers(reader, format.regs_user_mask, sample.regs_user);
      break;
    case SampleField::kStackUser:
      read_stack(reader, sample);
      break;
    case SampleField::kWeight:
      sample.weight = reader.u64();
      break;
    case SampleField::kDataSrc:
      sample.data_source = reader.u64();
      break;
    case SampleField::kTransaction:
      sample.transaction = reader.u64();
      break;
    case SampleField::kRegsIntr:
      read_registers(reader, format.regs_intr_mask, sample.regs_intr);
      break;
    case SampleField::kPhysAddr:
      sample.physical_address = reader.u64();
      break;
    case SampleField::kCgroup:
      sample.cgroup = reader.u64();
      break;
    case SampleField::kDataPageSize:
      sample.data_page_bytes = reader.u64();
      break;
    case SampleField::kCodePageSize:
      sample.code_page_bytes = reader.u64();
      break;
    case SampleField::kAux:
      sample.has_aux = true;
      sample.aux = take_items(reader, reader.u64(), 1);
      break;
    default:
      break;  // the id fields, read above
  }
}

}  // namespace

SampleFormat SampleFormat::from_attr(const perf_event_attr& attr) {
  return {attr.sample_type,      attr.read_format,      attr.branch_sample_type,
          attr.sample_regs_user, attr.sample_regs_intr, attr.sample_id_all != 0};
}

ReadValue ReadValues::operator[](size_t index) const {
  const bool group = (read_format_ & PERF_FORMAT_GROUP) != 0;
  const size_t first = index * read_value_words(read_format_);
  const auto& rest = group ? words_ : tail_;
  size_t next = group ? first + 1 : 0;
  ReadValue value;
  value.value = words_[first];
  if ((read_format_ & PERF_FORMAT_ID) != 0) value.id = rest[next++];
  if ((read_format_ & PERF_FORMAT_LOST) != 0) value.lost = rest[next];
  return value;
}

bool ReadValues::parse(std::span<const std::byte>& bytes, uint64_t read_format) {
  ByteReader reader(bytes);
  read_format_ = read_format;
  const bool group = (read_format & PERF_FORMAT_GROUP) != 0;
  std::span<const std::byte> single;
  uint64_t count = 1;
  if (group) {
    count = reader.u64();
  } else {
    single = reader.take(sizeof(uint64_t));  // the value stands before the times, id and lost after
  }
  if ((read_format & PERF_FORMAT_TOTAL_TIME_ENABLED) != 0) time_enabled = reader.u64();
  if ((read_format & PERF_FORMAT_TOTAL_TIME_RUNNING) != 0) time_running = reader.u64();
  const size_t stride_bytes = read_value_words(read_format) * sizeof(uint64_t);
  if (group) {
    words_ = PackedArray<uint64_t>(take_items(reader, count, stride_bytes));
  } else {
    tail_ = PackedArray<uint64_t>(reader.take(stride_bytes - sizeof(uint64_t)));
    words_ = PackedArray<uint64_t>(single);
  }
  if (reader.failed()) return false;
  count_ = static_cast<size_t>(count);
  bytes = bytes.subspan(reader.offset());
  return true;
}

const char* parse_status_text(ParseStatus status) {
  switch (status) {
    case ParseStatus::kOk:
      return "ok";
    case ParseStatus::kWrongType:
      return "not a record of this kind";
    case ParseStatus::kShort:
      return "a field reaches past the end of the record";
    case ParseStatus::kUnknownFields:
      return "sample_type has bits this version does not know";
  }
  return "?";
}

ParseStatus parse_sample(const Record& record, const SampleFormat& format, Sample& sample) {
  if (record.type != PERF_RECORD_SAMPLE) return ParseStatus::kWrongType;
  if ((format.sample_type & ~kKnownSampleTypeBits) != 0) return ParseStatus::kUnknownFields;
  sample = Sample{};
  sample.misc = record.misc;
  const auto body = record.body();
  ByteReader reader(body);
  for_each_sample_field(format.sample_type, [&](SampleField field) {
    read_field(reader, body, field, format, sample);
    return !reader.failed();
  });
  return reader.failed() ? ParseStatus::kShort : ParseStatus::kOk;
}

ParseStatus parse_trailer(const Record& record, const SampleFormat& format, SampleId& id) {
  id = SampleId{};
  if (record.type == PERF_RECORD_SAMPLE) return ParseStatus::kWrongType;
  if (record.type >= kUserRecordTypeStart) return ParseStatus::kOk;
  const size_t size = trailer_bytes(format.sample_type, format.sample_id_all);
  const auto body = record.body();
  if (size > body.size()) return ParseStatus::kShort;
  ByteReader reader(body.last(size));
  if (size == 0) return ParseStatus::kOk;
  for_each_trailer_field(format.sample_type,
                         [&](SampleField field) { return read_id_field(reader, field, id); });
  return ParseStatus::kOk;
}

bool record_event_id(const Record& record, const SampleFormat& first_attr, uint64_t& id) {
  const SampleField field =
      first_attr.has(PERF_SAMPLE_IDENTIFIER) ? SampleField::kIdentifier : SampleField::kId;
  size_t offset = kNoOffset;
  if (record.type == PERF_RECORD_SAMPLE) {
    offset = sample_field_offset(first_attr.sample_type, field);
  } else if (record.type < kUserRecordTypeStart && first_attr.sample_id_all) {
    const size_t back = trailer_field_offset_from_end(first_attr.sample_type, field);
    if (back != kNoOffset && back <= record.body().size()) offset = record.bytes.size() - back;
  }
  if (offset == kNoOffset || offset + sizeof(id) > record.bytes.size()) return false;
  std::memcpy(&id, record.bytes.data() + offset, sizeof(id));
  return true;
}

}  // namespace auxtrail::abi
