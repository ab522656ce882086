#include "perfdata/testing/exercise.h"

#include <fmt/format.h>

#include "abi/attr.h"
#include "abi/side_band.h"
#include "perfdata/reader.h"
#include "perfdata/unpacker.h"
#include "perfdata/user_records.h"

namespace auxtrail::perfdata::testing {
namespace {

// Sums bytes so that every view is really read.
uint64_t touch(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  for (const std::byte byte : bytes) sum += static_cast<uint64_t>(byte);
  return sum;
}
uint64_t touch(std::string_view text) { return touch(std::as_bytes(std::span(text))); }
template <class T>
uint64_t touch(const abi::PackedArray<T>& array) {
  uint64_t count = 0;
  for (const T value : array) count += sizeof(value);
  return count;
}

template <class SideBand>
void try_parse(Reader& reader, const DataRecord& record, uint64_t& parsed) {
  SideBand out;
  const abi::SampleFormat& format =
      record.event != nullptr ? record.event->format : reader.events().front().format;
  if (abi::parse(record.record, format, out) == abi::ParseStatus::kOk) ++parsed;
}

void parse_side_band(Reader& reader, const DataRecord& record, uint64_t& parsed) {
  try_parse<abi::CommRecord>(reader, record, parsed);
  try_parse<abi::TaskRecord>(reader, record, parsed);
  try_parse<abi::LostRecord>(reader, record, parsed);
  try_parse<abi::ThrottleRecord>(reader, record, parsed);
  try_parse<abi::ReadRecord>(reader, record, parsed);
  try_parse<abi::AuxRecord>(reader, record, parsed);
  try_parse<abi::ItraceStartRecord>(reader, record, parsed);
  try_parse<abi::SwitchRecord>(reader, record, parsed);
  try_parse<abi::NamespacesRecord>(reader, record, parsed);
  try_parse<abi::KsymbolRecord>(reader, record, parsed);
  try_parse<abi::BpfRecord>(reader, record, parsed);
  try_parse<abi::CgroupRecord>(reader, record, parsed);
  try_parse<abi::TextPokeRecord>(reader, record, parsed);
  try_parse<abi::AuxHwIdRecord>(reader, record, parsed);
  abi::MmapRecord mmap;
  if (record.event != nullptr &&
      abi::parse(record.record, record.event->format, mmap) == abi::ParseStatus::kOk) {
    ++parsed;
    (void)(touch(mmap.path) + touch(mmap.build_id));
  }
}

void parse_tool_records(const abi::Record& record, uint64_t& parsed) {
  if (parse_auxtrace_info(record)) ++parsed;
  if (parse_auxtrace(record)) ++parsed;
  if (parse_auxtrace_error(record)) ++parsed;
  if (parse_id_index(record)) ++parsed;
  if (parse_time_conv(record)) ++parsed;
  if (parse_thread_map(record)) ++parsed;
}

void parse_record(Reader& reader, const DataRecord& record, ExerciseOutcome& outcome) {
  abi::Sample sample;
  if (record.record.type == PERF_RECORD_SAMPLE && reader.parse_sample(record, sample)) {
    ++outcome.parsed;
    uint64_t sum = touch(sample.aux) + touch(sample.raw) + touch(sample.stack_user) +
                   touch(sample.callchain) + touch(sample.branches) +
                   touch(sample.branch_counters) + touch(sample.regs_user.values) +
                   touch(sample.regs_intr.values);
    for (size_t at = 0; at < sample.read.size(); ++at) sum += sample.read[at].value;
    (void)sum;
  }
  parse_side_band(reader, record, outcome.parsed);
  parse_tool_records(record.record, outcome.parsed);
  (void)touch(record.payload);
}

}  // namespace

ExerciseOutcome exercise(std::span<const std::byte> file) {
  ExerciseOutcome outcome;
  ReaderOptions options;
  options.max_pending_records = 1000;
  auto reader = Reader::from_bytes(file, "memory", options);
  if (!reader) {
    if (reader.error().message().empty()) outcome.broken = "an Error without a message";
    return outcome;
  }
  outcome.opened = true;

  uint64_t bytes = 0;
  reader->for_each_raw([&](const DataRecord& record) {
    bytes += record.record.bytes.size() + record.payload.size();
    return true;
  });
  const Statistics raw = reader->statistics();
  if (raw.bad_size_records == 0 && bytes + raw.truncated_bytes != reader->data_bytes()) {
    outcome.broken = fmt::format("{} bytes of records and {} truncated, but {} of data", bytes,
                                 raw.truncated_bytes, reader->data_bytes());
  }

  // A stream may unpack to thousands of times its size: look at so many records only.
  constexpr uint64_t kMaxRecords = 200000;
  const auto limited = [&](const DataRecord&, uint64_t& seen) { return ++seen < kMaxRecords; };
  uint64_t in_file_order = 0;
  reader->for_each([&](const DataRecord& record) {
    parse_record(*reader, record, outcome);
    return limited(record, in_file_order);
  });
  reader->for_each_ordered([&](const DataRecord& record) {
    (void)touch(record.record.bytes);
    return limited(record, outcome.records);
  });
  if (outcome.records != in_file_order) {
    outcome.broken = fmt::format("{} records in file order, {} in order of time", in_file_order,
                                 outcome.records);
  }
  (void)reader->auxtrace_info();
  (void)reader->statistics().messages();
  for (const Event& event : reader->events()) (void)touch(abi::event_name(event.attr));
  return outcome;
}

}  // namespace auxtrail::perfdata::testing
