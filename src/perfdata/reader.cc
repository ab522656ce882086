#include "perfdata/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "abi/side_band.h"
#include "base/bytes.h"
#include "perfdata/file_front.h"
#include "perfdata/round_queue.h"
#include "perfdata/unpacker.h"

namespace auxtrail::perfdata {
namespace {

using Bytes = std::span<const std::byte>;

// Where an event's records have their time.
struct TimePlaces {
  size_t in_sample = abi::kNoOffset;  // from the start
  size_t from_end = abi::kNoOffset;   // of a record with a trailer
};

TimePlaces time_places(const abi::SampleFormat& format) {
  TimePlaces places;
  places.in_sample = abi::sample_field_offset(format.sample_type, abi::SampleField::kTime);
  if (format.sample_id_all) {
    places.from_end =
        abi::trailer_field_offset_from_end(format.sample_type, abi::SampleField::kTime);
  }
  return places;
}

uint64_t time_of(const abi::Record& record, const TimePlaces& places) {
  uint64_t time_ns = 0;
  size_t offset = places.in_sample;
  if (record.type != PERF_RECORD_SAMPLE) {
    if (places.from_end == abi::kNoOffset || places.from_end > record.body().size()) return 0;
    offset = record.bytes.size() - places.from_end;
  }
  if (offset == abi::kNoOffset || offset + sizeof(time_ns) > record.bytes.size()) return 0;
  std::memcpy(&time_ns, record.bytes.data() + offset, sizeof(time_ns));
  return time_ns == ~uint64_t{0} ? 0 : time_ns;
}

bool is_compressed(uint32_t type) {
  return type == abi::kRecordCompressed || type == abi::kRecordCompressed2;
}

}  // namespace

class Reader::Impl {
 public:
  Impl(Mapping mapping, Bytes bytes, std::string name, FileFront front, ReaderOptions options)
      : mapping_(std::move(mapping)),
        bytes_(bytes),
        name_(std::move(name)),
        options_(options),
        front_(std::move(front)),
        statistics_(front_.statistics) {
    for (size_t at = 0; at < front_.events.size(); ++at) {
      time_places_.push_back(time_places(front_.events[at].format));
      for (const uint64_t id : front_.events[at].ids) event_of_id_.emplace(id, at);
    }
  }

  void begin() { statistics_ = front_.statistics; }
  bool walk(bool unpack, const RecordVisitor& visitor);
  void note(const DataRecord& record);
  [[nodiscard]] DataRecord describe(const abi::Record& record, uint64_t file_offset) const;
  [[nodiscard]] const Event* event_by_id(uint64_t id) const {
    const auto found = event_of_id_.find(id);
    return found == event_of_id_.end() ? nullptr : &front_.events[found->second];
  }

  Mapping mapping_;
  Bytes bytes_;
  std::string name_;
  ReaderOptions options_;
  FileFront front_;
  std::unordered_map<uint64_t, size_t> event_of_id_;
  std::vector<TimePlaces> time_places_;
  Statistics statistics_;
  std::optional<AuxtraceInfo> auxtrace_info_;
  bool looked_for_auxtrace_info_ = false;

 private:
  [[nodiscard]] const Event* event_of(const abi::Record& record) const;
  bool take_payload(uint64_t end, uint64_t& offset, DataRecord& record);
  bool unpack_record(Unpacker& unpacker, const DataRecord& packed, const RecordVisitor& visitor);
};

// As Linux perf: with one event there is no question; id 0 is a record that perf made up itself.
const Event* Reader::Impl::event_of(const abi::Record& record) const {
  if (record.type >= abi::kUserRecordTypeStart) return nullptr;
  const Event& first = front_.events.front();
  if (front_.events.size() == 1) return &first;
  if (!first.format.sample_id_all && record.type != PERF_RECORD_SAMPLE) return &first;
  uint64_t id = 0;
  if (!abi::record_event_id(record, first.format, id)) return nullptr;
  return id == 0 ? &first : event_by_id(id);
}

DataRecord Reader::Impl::describe(const abi::Record& record, uint64_t file_offset) const {
  DataRecord described;
  described.record = record;
  described.file_offset = file_offset;
  described.event = event_of(record);
  if (described.event != nullptr) {
    const auto index = static_cast<size_t>(described.event - front_.events.data());
    described.time_ns = time_of(record, time_places_[index]);
  }
  return described;
}

// The data behind an AUXTRACE record. False if the file ends before it does.
bool Reader::Impl::take_payload(uint64_t end, uint64_t& offset, DataRecord& record) {
  if (record.record.type != abi::kRecordAuxtrace) return true;
  const auto auxtrace = parse_auxtrace(record.record);
  if (!auxtrace) {
    ++statistics_.malformed_records;
    return true;
  }
  if (auxtrace->size_bytes > end - offset) return false;
  record.payload = bytes_.subspan(offset, auxtrace->size_bytes);
  offset += auxtrace->size_bytes;
  return true;
}

bool Reader::Impl::unpack_record(Unpacker& unpacker, const DataRecord& packed,
                                 const RecordVisitor& visitor) {
  const auto outcome = unpacker.feed(packed_bytes(packed.record), [&](const abi::Record& inner) {
    DataRecord record = describe(inner, packed.file_offset);
    record.unpacked = true;
    return visitor(record);
  });
  if (outcome == Unpacker::Outcome::kBroken) ++statistics_.undecompressed_records;
  return outcome != Unpacker::Outcome::kStopped;
}

// Calls the visitor for each record in file order. False if the visitor said stop.
bool Reader::Impl::walk(bool unpack, const RecordVisitor& visitor) {
  Unpacker unpacker;
  uint64_t offset = front_.data.offset;
  const uint64_t end = offset + front_.data.size_bytes;
  while (offset < end) {
    abi::Record raw;
    const auto status = first_record(bytes_.subspan(offset, end - offset), raw);
    if (status != abi::RecordStatus::kOk) {
      if (status == abi::RecordStatus::kBadSize) ++statistics_.bad_size_records;
      if (status == abi::RecordStatus::kShort) statistics_.truncated_bytes += end - offset;
      break;
    }
    DataRecord record = describe(raw, offset);
    uint64_t next = offset + raw.bytes.size();
    if (!take_payload(end, next, record)) {
      statistics_.truncated_bytes += end - offset;
      break;
    }
    offset = next;
    const bool go_on = unpack && is_compressed(raw.type) ? unpack_record(unpacker, record, visitor)
                                                         : visitor(record);
    if (!go_on) return false;
  }
  statistics_.truncated_bytes += unpacker.pending_bytes();
  return true;
}

void Reader::Impl::note(const DataRecord& record) {
  Statistics& counts = statistics_;
  ++counts.records;
  ++counts.by_type[record.record.type];
  const uint32_t type = record.record.type;
  if (!abi::is_known_record_type(type)) ++counts.unknown_records;
  if (record.event == nullptr) {
    if (type < abi::kUserRecordTypeStart) ++counts.unknown_event_ids;
    return;
  }
  if (type == PERF_RECORD_SAMPLE) {
    ++counts.samples;
  } else if (type == PERF_RECORD_THROTTLE) {
    ++counts.throttles;
  } else if (type == PERF_RECORD_LOST || type == PERF_RECORD_LOST_SAMPLES) {
    abi::LostRecord lost;
    if (abi::parse(record.record, record.event->format, lost) != abi::ParseStatus::kOk) return;
    (type == PERF_RECORD_LOST ? counts.lost_records : counts.lost_samples) += lost.lost;
  } else if (type == PERF_RECORD_AUX) {
    abi::AuxRecord aux;
    if (abi::parse(record.record, record.event->format, aux) != abi::ParseStatus::kOk) return;
    if ((aux.flags & PERF_AUX_FLAG_TRUNCATED) != 0) ++counts.aux_truncated;
    if ((aux.flags & PERF_AUX_FLAG_PARTIAL) != 0) ++counts.aux_partial;
    if ((aux.flags & PERF_AUX_FLAG_COLLISION) != 0) ++counts.aux_collisions;
  }
}

Reader::Reader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;
Reader::~Reader() = default;

Result<Reader> Reader::open(const std::string& path, ReaderOptions options) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    return fail_errno("open perf.data", path, errno,
                      errno == ENOENT ? "record one first, or name it with -i" : "");
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return fail_errno("open perf.data", path, errno);
  if (S_ISDIR(info.st_mode)) {
    return fail({"open perf.data", path, "it is a perf.data directory (perf record --threads)",
                 "give the file named data in it", 0});
  }
  if (!S_ISREG(info.st_mode)) {
    return fail({"open perf.data", path, "it is not a regular file", "record into a file", 0});
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return fail({"open perf.data", path, "the file is empty", "", 0});
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) return fail_errno("map perf.data", path, errno);
  Mapping mapping(address, size);
  const Bytes bytes = mapping.bytes();
  AUXTRAIL_ASSIGN(auto front, read_front(bytes, path));
  return Reader(std::make_unique<Impl>(std::move(mapping), bytes, path, std::move(front), options));
}

Result<Reader> Reader::from_bytes(Bytes bytes, const std::string& name, ReaderOptions options) {
  AUXTRAIL_ASSIGN(auto front, read_front(bytes, name));
  return Reader(std::make_unique<Impl>(Mapping{}, bytes, name, std::move(front), options));
}

const std::string& Reader::name() const { return impl_->name_; }
const std::vector<Event>& Reader::events() const { return impl_->front_.events; }
const Event* Reader::event_by_id(uint64_t id) const { return impl_->event_by_id(id); }
const Features& Reader::features() const { return impl_->front_.features; }
const Statistics& Reader::statistics() const { return impl_->statistics_; }
uint64_t Reader::data_offset() const { return impl_->front_.data.offset; }
uint64_t Reader::data_bytes() const { return impl_->front_.data.size_bytes; }
uint64_t Reader::file_bytes() const { return impl_->bytes_.size(); }

const std::optional<AuxtraceInfo>& Reader::auxtrace_info() {
  if (!impl_->looked_for_auxtrace_info_) {
    impl_->looked_for_auxtrace_info_ = true;
    const Statistics kept = impl_->statistics_;
    impl_->walk(true, [this](const DataRecord& record) {
      impl_->auxtrace_info_ = parse_auxtrace_info(record.record);
      return !impl_->auxtrace_info_;
    });
    impl_->statistics_ = kept;
  }
  return impl_->auxtrace_info_;
}

void Reader::for_each(const RecordVisitor& visitor) {
  impl_->begin();
  impl_->walk(true, [&](const DataRecord& record) {
    impl_->note(record);
    return visitor(record);
  });
}

void Reader::for_each_raw(const RecordVisitor& visitor) {
  impl_->begin();
  impl_->walk(false, [&](const DataRecord& record) {
    impl_->note(record);
    return visitor(record);
  });
}

void Reader::for_each_ordered(const RecordVisitor& visitor) {
  impl_->begin();
  RoundQueue queue(impl_->options_.max_pending_records);
  const auto deliver = [&](const DataRecord& record) {
    impl_->note(record);
    return visitor(record);
  };
  const bool to_the_end = impl_->walk(true, [&](const DataRecord& record) {
    if (record.time_ns != 0) return queue.push(record, deliver);
    if (record.record.type == abi::kRecordFinishedRound && !queue.end_round(deliver)) return false;
    return deliver(record);
  });
  if (to_the_end) queue.end_all(deliver);
  impl_->statistics_.out_of_order_records = queue.out_of_order();
}

const abi::SampleFormat& Reader::format_of(const DataRecord& record) const {
  return record.event != nullptr ? record.event->format : impl_->front_.events.front().format;
}

bool Reader::count(abi::ParseStatus status) {
  if (status != abi::ParseStatus::kOk) ++impl_->statistics_.malformed_records;
  return status == abi::ParseStatus::kOk;
}

bool Reader::parse_sample(const DataRecord& record, abi::Sample& sample) {
  if (record.event == nullptr) return false;
  return count(abi::parse_sample(record.record, record.event->format, sample));
}

}  // namespace auxtrail::perfdata
