#include "perfdata/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <unordered_set>

#include "abi/attr.h"
#include "abi/record.h"
#include "perfdata/file_layout.h"

namespace auxtrail::perfdata {
namespace {

// What Linux perf 6.1 knows; it refuses files with larger attrs.
constexpr size_t kAttrBytes = PERF_ATTR_SIZE_VER7;
constexpr size_t kFileAttrBytes = kAttrBytes + sizeof(FileSection);
constexpr uint64_t kAuxtraceBit = uint64_t{1} << static_cast<uint32_t>(Feature::kAuxtrace);

// The sections written at the end, in rising order as the format wants them.
constexpr Feature kWrittenFeatures[] = {
    Feature::kBuildId,     Feature::kHostname,  Feature::kOsRelease, Feature::kVersion,
    Feature::kArch,        Feature::kNrCpus,    Feature::kCpuDesc,   Feature::kCpuId,
    Feature::kTotalMem,    Feature::kCmdline,   Feature::kEventDesc, Feature::kBranchStack,
    Feature::kPmuMappings, Feature::kGroupDesc, Feature::kAuxtrace,  Feature::kSampleTime,
    Feature::kClockId,     Feature::kClockData};

Status write_all(int fd, std::span<const std::byte> bytes, uint64_t offset,
                 const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int saved = written < 0 ? errno : ENOSPC;
      return fail_errno("write perf.data", fmt::format("{} at offset {}", name, offset), saved,
                        saved == ENOSPC ? "free space there, or choose another file with -o" : "");
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

Error bad_events(std::string why) { return {"create perf.data", "events", std::move(why), "", 0}; }

// Where the id stands in a sample and in a trailer; perf wants all attrs of a file to agree.
std::pair<size_t, size_t> id_places(uint64_t sample_type) {
  const auto field = (sample_type & PERF_SAMPLE_IDENTIFIER) != 0 ? abi::SampleField::kIdentifier
                                                                 : abi::SampleField::kId;
  return {abi::sample_field_offset(sample_type, field),
          abi::trailer_field_offset_from_end(sample_type, field)};
}

Status check_events(const std::vector<Event>& events, bool auxtrace) {
  if (events.empty()) return fail(bad_events("there are none"));
  std::unordered_set<uint64_t> seen;
  for (const Event& event : events) {
    if (event.ids.empty()) return fail(bad_events("an event has no id"));
    for (const uint64_t id : event.ids) {
      if (id == 0) return fail(bad_events("an id is 0"));
      if (!seen.insert(id).second) return fail(bad_events(fmt::format("id {} occurs twice", id)));
    }
    if (id_places(event.attr.sample_type) != id_places(events.front().attr.sample_type)) {
      return fail(bad_events("the events disagree about the place of the id in a record"));
    }
    if (auxtrace && event.attr.sample_id_all == 0) {
      return fail(bad_events("trace data needs sample_id_all in every attr"));
    }
  }
  return {};
}

// The offset of TIME if it is the same in the samples of all events that have it.
size_t common_time_offset(const std::vector<Event>& events) {
  size_t common = abi::kNoOffset;
  for (const Event& event : events) {
    const size_t offset = abi::sample_field_offset(event.attr.sample_type, abi::SampleField::kTime);
    if (offset == abi::kNoOffset) return abi::kNoOffset;
    if (common != abi::kNoOffset && common != offset) return abi::kNoOffset;
    common = offset;
  }
  return common;
}

}  // namespace

Result<Writer> Writer::create(const std::string& path, std::vector<Event> events,
                              WriterOptions options) {
  AUXTRAIL_TRY(check_events(events, options.auxtrace));
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) {
    return fail_errno("create perf.data", path, errno, "choose a writable file with -o");
  }
  return create(std::move(fd), path, std::move(events), options);
}

Result<Writer> Writer::create(UniqueFd fd, const std::string& name, std::vector<Event> events,
                              WriterOptions options) {
  AUXTRAIL_TRY(check_events(events, options.auxtrace));
  Writer writer(std::move(fd), name, std::move(events), options);
  AUXTRAIL_TRY(writer.write_front());
  return writer;
}

Writer::Writer(UniqueFd fd, std::string name, std::vector<Event> events, WriterOptions options)
    : fd_(std::move(fd)), name_(std::move(name)), events_(std::move(events)), options_(options) {
  time_offset_ = common_time_offset(events_);
  buffer_.buffer().reserve(options_.buffer_bytes + abi::kMaxRecordBytes);
}

Writer::~Writer() {
  if (fd_ && !failure_) (void)flush();
}

// Header, id arrays, attrs, and the feature table behind the still empty data section.
Status Writer::write_front() {
  ByteWriter front;
  front.write(FileHeader{});
  std::vector<FileSection> id_sections;
  for (const Event& event : events_) {
    id_sections.push_back({front.size(), event.ids.size() * sizeof(uint64_t)});
    for (const uint64_t id : event.ids) front.u64(id);
  }
  attrs_offset_ = front.size();
  for (size_t at = 0; at < events_.size(); ++at) {
    perf_event_attr attr = events_[at].attr;
    attr.size = kAttrBytes;
    front.append(std::as_bytes(std::span(&attr, 1)).first(kAttrBytes));
    front.write(id_sections[at]);
  }
  data_offset_ = front.size();
  AUXTRAIL_TRY(write_all(fd_.get(), front.bytes(), 0, name_));
  return write_records();
}

Status Writer::write_header(bool with_features) {
  FileHeader header;
  header.header_bytes = sizeof(FileHeader);
  header.attr_bytes = kFileAttrBytes;
  header.attrs = {attrs_offset_, events_.size() * kFileAttrBytes};
  header.data = {data_offset_, flushed_bytes_};
  header.feature_bits[0] = with_features ? feature_bits_ : 0;
  return write_all(fd_.get(), std::as_bytes(std::span(&header, 1)), 0, name_);
}

Status Writer::append(std::span<const std::byte> records) { return append(records, {}); }

Status Writer::append(std::span<const std::byte> first, std::span<const std::byte> second) {
  if (failure_) return fail(*failure_);
  const size_t old_size = buffer_.size();
  buffer_.append(first);
  buffer_.append(second);
  AUXTRAIL_TRY(accept_tail(old_size));
  return buffer_.size() >= options_.buffer_bytes ? flush() : Status{};
}

// Checks the records that were just put behind `old_size` in the buffer; takes all back if one is
// bad.
Status Writer::accept_tail(size_t old_size) {
  const auto added = buffer_.bytes().subspan(old_size);
  auto rest = added;
  while (!rest.empty()) {
    abi::Record record;
    const bool whole = first_record(rest, record) == abi::RecordStatus::kOk;
    if (!whole || record.type == abi::kRecordAuxtrace) {
      const size_t at = added.size() - rest.size();
      buffer_.buffer().resize(old_size);
      return fail({"append records to perf.data", fmt::format("byte {} of the records", at),
                   whole ? "AUXTRACE records need append_auxtrace()" : "not a whole record", "",
                   0});
    }
    rest = rest.subspan(record.bytes.size());
  }
  for (rest = added; !rest.empty();) {
    abi::Record record;
    (void)first_record(rest, record);
    note_record(record.bytes);
    rest = rest.subspan(record.bytes.size());
  }
  return {};
}

void Writer::note_record(std::span<const std::byte> record) {
  perf_event_header header{};
  std::memcpy(&header, record.data(), sizeof(header));
  if (header.type != PERF_RECORD_SAMPLE) return;
  ++sample_count_;
  uint64_t time_ns = 0;
  if (time_offset_ == abi::kNoOffset || record.size() < time_offset_ + sizeof(time_ns)) return;
  std::memcpy(&time_ns, record.data() + time_offset_, sizeof(time_ns));
  first_time_ns_ = std::min(first_time_ns_, time_ns);
  last_time_ns_ = std::max(last_time_ns_, time_ns);
}

Status Writer::append_auxtrace(AuxtraceRecord auxtrace, std::span<const std::byte> payload) {
  return append_auxtrace(auxtrace, payload, {});
}

Status Writer::append_auxtrace(AuxtraceRecord auxtrace, std::span<const std::byte> first,
                               std::span<const std::byte> second) {
  if (failure_) return fail(*failure_);
  const uint64_t offset = file_bytes();
  const uint64_t payload_bytes = first.size() + second.size();
  auxtrace.size_bytes = (payload_bytes + 7) / 8 * 8;
  const size_t start = buffer_.size();
  perfdata::append_auxtrace(buffer_, auxtrace);
  auxtrace_index_.push_back({offset, buffer_.size() - start});
  buffer_.append(first);
  buffer_.append(second);
  for (size_t at = payload_bytes; at < auxtrace.size_bytes; ++at) buffer_.u8(0);
  return buffer_.size() >= options_.buffer_bytes ? flush() : Status{};
}

Status Writer::finished_round() {
  ByteWriter record;
  append_finished_round(record);
  return append(record.bytes());
}

Status Writer::flush() {
  if (failure_) return fail(*failure_);
  if (buffer_.size() == 0) return {};
  auto written = write_records();
  return written ? written : fall_back(written.error());
}

// The three steps that keep the file readable at every moment: header without the feature table,
// then records and a new table (AUXTRACE alone, with an empty index), then the header that tells of
// both.
Status Writer::write_records() {
  if (feature_bits_ != 0) AUXTRAIL_TRY(write_header(false));
  const size_t record_bytes = buffer_.size();
  const uint64_t end = data_offset_ + flushed_bytes_ + record_bytes;
  const uint64_t bits = options_.auxtrace ? kAuxtraceBit : 0;
  if (options_.auxtrace) {
    const auto payload = encode_feature({}, Feature::kAuxtrace);
    buffer_.write(FileSection{end + sizeof(FileSection), payload.size()});
    buffer_.append(payload);
  }
  auto written = write_all(fd_.get(), buffer_.bytes(), data_offset_ + flushed_bytes_, name_);
  if (!written) return written;
  buffer_.buffer().clear();
  flushed_bytes_ += record_bytes;
  feature_bits_ = bits;
  return write_header(true);
}

// After a failed write: back to the last complete flush, with what feature table fits behind it.
Status Writer::fall_back(Error error) {
  error.why += fmt::format("; the file holds the records of its first {} bytes", flushed_bytes_);
  failure_ = error;
  buffer_.buffer().clear();
  feature_bits_ = 0;
  (void)write_header(false);
  if (::ftruncate(fd_.get(), static_cast<off_t>(data_offset_ + flushed_bytes_)) == 0) {
    (void)write_records();
  }
  buffer_.buffer().clear();
  return fail(std::move(error));
}

std::optional<std::pair<uint64_t, uint64_t>> Writer::sample_time_ns() const {
  if (first_time_ns_ > last_time_ns_) return std::nullopt;
  return std::pair{first_time_ns_, last_time_ns_};
}

// The table of sections, then their payloads, behind the data section.
Status Writer::write_feature_sections(
    const std::vector<std::pair<uint32_t, std::vector<std::byte>>>& sections) {
  AUXTRAIL_TRY(write_header(false));
  ByteWriter table;
  const uint64_t start = data_offset_ + flushed_bytes_;
  uint64_t payload_offset = start + sections.size() * sizeof(FileSection);
  uint64_t bits = 0;
  for (const auto& [feature, payload] : sections) {
    table.write(FileSection{payload_offset, payload.size()});
    payload_offset += payload.size();
    bits |= uint64_t{1} << feature;
  }
  for (const auto& [feature, payload] : sections) table.append(payload);
  AUXTRAIL_TRY(write_all(fd_.get(), table.bytes(), start, name_));
  if (::ftruncate(fd_.get(), static_cast<off_t>(start + table.size())) != 0) {
    return fail_errno("set the size of perf.data", name_, errno);
  }
  feature_bits_ = bits;
  return write_header(true);
}

Status Writer::write_features_and_close(Features features) {
  if (!fd_) return fail({"close perf.data", name_, "it is closed already", "", 0});
  if (!failure_) (void)flush();
  features.event_descriptions = events_;
  for (Event& event : features.event_descriptions) {
    if (event.name.empty()) event.name = abi::event_name(event.attr);
  }
  features.auxtrace_index = std::move(auxtrace_index_);
  if (failure_) {  // entries of records that the full disk kept out
    std::erase_if(features.auxtrace_index, [this](const AuxtraceIndexEntry& entry) {
      return entry.file_offset >= data_offset_ + flushed_bytes_;
    });
  }
  if (!features.sample_time_ns) features.sample_time_ns = sample_time_ns();

  std::vector<std::pair<uint32_t, std::vector<std::byte>>> sections;
  for (const Feature feature : kWrittenFeatures) {
    if (feature == Feature::kAuxtrace && !options_.auxtrace) continue;
    auto payload = encode_feature(features, feature);
    const bool flag = feature == Feature::kBranchStack && features.branch_stacks;
    if (payload.empty() && !flag) continue;
    sections.emplace_back(static_cast<uint32_t>(feature), std::move(payload));
  }
  auto written = write_feature_sections(sections);
  if (!written) {
    const auto first_failure = failure_;
    (void)fall_back(written.error());
    if (first_failure) failure_ = first_failure;
  }
  if (::close(fd_.release()) != 0 && !failure_) {
    return fail_errno("close perf.data", name_, errno);
  }
  return failure_ ? Status(fail(*failure_)) : Status{};
}

}  // namespace auxtrail::perfdata
