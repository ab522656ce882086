#include "perfdata/file_front.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "abi/attr.h"
#include "base/bytes.h"

namespace auxtrail::perfdata {
namespace {

using Bytes = std::span<const std::byte>;

Error bad_file(const std::string& name, std::string why, std::string fix = "") {
  return {"read perf.data", name, std::move(why), std::move(fix), 0};
}

bool inside(const FileSection& section, uint64_t file_bytes) {
  return section.offset <= file_bytes && section.size_bytes <= file_bytes - section.offset;
}

Bytes part(Bytes file, const FileSection& section) {
  return file.subspan(static_cast<size_t>(section.offset), static_cast<size_t>(section.size_bytes));
}

Result<FileHeader> read_header(Bytes file, const std::string& name) {
  constexpr size_t kWithoutFeatures = offsetof(FileHeader, feature_bits);
  ByteReader in(file);
  const uint64_t magic = in.u64();
  const uint64_t header_bytes = in.u64();
  if (in.failed()) {
    return fail(
        bad_file(name, fmt::format("{} bytes are too few for a perf.data file", file.size())));
  }
  if (magic == kMagicPerfile2Swapped) {
    return fail(bad_file(name, "it was recorded on a machine with another byte order",
                         "read it on a machine of that kind"));
  }
  if (magic == kMagicPerfile1) {
    return fail(bad_file(name, "it is a perf.data file of the first format (before Linux 3.6)"));
  }
  if (magic != kMagicPerfile2) {
    return fail(bad_file(name, "it does not begin with PERFILE2", "is it a perf.data file?"));
  }
  if (header_bytes == kPipeHeaderBytes) {
    return fail(bad_file(name, "it was written to a pipe, a form that has no sections",
                         "record into a file: -o FILE"));
  }
  if (header_bytes != sizeof(FileHeader) && header_bytes != kWithoutFeatures) {
    return fail(bad_file(name, fmt::format("its header claims {} bytes, expected {}", header_bytes,
                                           sizeof(FileHeader))));
  }
  if (file.size() < header_bytes) {
    return fail(bad_file(
        name, fmt::format("the file ends after {} of {} header bytes", file.size(), header_bytes)));
  }
  FileHeader header;
  std::memcpy(&header, file.data(), static_cast<size_t>(header_bytes));
  return header;
}

Result<Event> read_event(Bytes file, Bytes entry, const std::string& name, uint64_t& ids_left) {
  const size_t attr_room = entry.size() - sizeof(FileSection);
  auto attr = abi::read_attr(entry.first(attr_room));
  if (!attr) return fail(bad_file(name, fmt::format("its attrs have only {} bytes", attr_room)));
  // Each attr says its own size; the ids' section follows it directly.
  const size_t attr_bytes =
      attr->size >= PERF_ATTR_SIZE_VER0 && attr->size <= attr_room ? attr->size : attr_room;
  ByteReader in(entry.subspan(attr_bytes));
  const auto ids = in.read<FileSection>();
  const uint64_t count = ids.size_bytes / sizeof(uint64_t);
  if (!inside(ids, file.size()) || count > ids_left) {
    return fail(bad_file(name, fmt::format("the ids of an event ({} bytes at {}) are not in the "
                                           "file of {} bytes",
                                           ids.size_bytes, ids.offset, file.size())));
  }
  ids_left -= count;
  Event event;
  event.attr = *abi::read_attr(entry.first(attr_bytes));
  event.format = abi::SampleFormat::from_attr(event.attr);
  ByteReader id_reader(part(file, ids));
  for (uint64_t at = 0; at < count; ++at) event.ids.push_back(id_reader.u64());
  return event;
}

Result<std::vector<Event>> read_events(Bytes file, const FileHeader& header,
                                       const std::string& name) {
  if (header.attr_bytes < PERF_ATTR_SIZE_VER0 + sizeof(FileSection) ||
      header.attr_bytes > UINT16_MAX) {
    return fail(bad_file(name, fmt::format("its attrs claim {} bytes each", header.attr_bytes),
                         "did the recorder end properly?"));
  }
  if (!inside(header.attrs, file.size())) {
    return fail(
        bad_file(name, fmt::format("the attrs ({} bytes at {}) are not in the file of {} "
                                   "bytes",
                                   header.attrs.size_bytes, header.attrs.offset, file.size())));
  }
  std::vector<Event> events;
  uint64_t ids_left = file.size() / sizeof(uint64_t);  // they cannot all share one place
  for (Bytes rest = part(file, header.attrs); rest.size() >= header.attr_bytes;) {
    AUXTRAIL_ASSIGN(auto event, read_event(file, rest.first(header.attr_bytes), name, ids_left));
    events.push_back(std::move(event));
    rest = rest.subspan(header.attr_bytes);
  }
  if (events.empty()) return fail(bad_file(name, "it describes no events"));
  return events;
}

std::vector<uint32_t> features_in(const FileHeader& header) {
  std::vector<uint32_t> features;
  for (uint32_t bit = 0; bit < kFeatureBits; ++bit) {
    if (((header.feature_bits[bit / 64] >> (bit % 64)) & 1) != 0) features.push_back(bit);
  }
  return features;
}

// Whether a feature table stands at `offset`: its sections follow it and each other. Tells a
// recording without records from one whose recorder died before it wrote the data's size.
bool is_feature_table(Bytes file, uint64_t offset, size_t sections) {
  const FileSection table{offset, sections * sizeof(FileSection)};
  if (sections == 0 || !inside(table, file.size())) return false;
  ByteReader in(part(file, table));
  uint64_t expected = offset + table.size_bytes;
  for (size_t at = 0; at < sections; ++at) {
    const auto section = in.read<FileSection>();
    if (section.offset != expected || !inside(section, file.size())) return false;
    expected += section.size_bytes;
  }
  return true;
}

Result<FileSection> find_data(Bytes file, const FileHeader& header, const std::string& name,
                              Statistics& statistics) {
  FileSection data = header.data;
  if (data.offset < header.header_bytes || data.offset > file.size()) {
    return fail(bad_file(
        name,
        fmt::format("its records begin at {} in a file of {} bytes", data.offset, file.size()),
        "the file was cut short"));
  }
  const uint64_t room = file.size() - data.offset;
  if (data.size_bytes == 0 && room != 0 &&
      !is_feature_table(file, data.offset, features_in(header).size())) {
    statistics.data_size_missing = true;
    data.size_bytes = room;
  }
  if (data.size_bytes > room) {
    statistics.data_size_beyond_file = true;
    data.size_bytes = room;
  }
  return data;
}

void read_features(Bytes file, const FileHeader& header, FileFront& front) {
  if (front.statistics.data_size_missing || front.statistics.data_size_beyond_file) return;
  ByteReader table(file.subspan(front.data.offset + front.data.size_bytes));
  for (const uint32_t feature : features_in(header)) {
    const auto section = table.read<FileSection>();
    const bool good = !table.failed() && inside(section, file.size()) &&
                      decode_feature(feature, part(file, section), front.features);
    if (!good) ++front.statistics.bad_features;
  }
}

// Names from EVENT_DESC, found by an id or, without ids, by the place; else made from the attr.
void name_events(FileFront& front) {
  abi::PmuNames pmus;
  for (const PmuMapping& pmu : front.features.pmus) pmus[pmu.type] = pmu.name;
  std::unordered_map<uint64_t, const Event*> by_id;
  for (const Event& described : front.features.event_descriptions) {
    for (const uint64_t id : described.ids) by_id.emplace(id, &described);
  }
  const auto& descriptions = front.features.event_descriptions;
  for (size_t at = 0; at < front.events.size(); ++at) {
    Event& event = front.events[at];
    const Event* described = nullptr;
    if (!event.ids.empty()) {
      const auto found = by_id.find(event.ids.front());
      if (found != by_id.end()) described = found->second;
    } else if (at < descriptions.size() && descriptions[at].attr.type == event.attr.type &&
               descriptions[at].attr.config == event.attr.config) {
      described = &descriptions[at];
    }
    event.name = described != nullptr ? described->name : "";
    if (event.name.empty()) event.name = abi::event_name(event.attr, pmus);
  }
}

}  // namespace

Result<FileFront> read_front(Bytes file, const std::string& name) {
  AUXTRAIL_ASSIGN(const FileHeader header, read_header(file, name));
  FileFront front;
  AUXTRAIL_ASSIGN(front.events, read_events(file, header, name));
  AUXTRAIL_ASSIGN(front.data, find_data(file, header, name, front.statistics));
  read_features(file, header, front);
  name_events(front);
  return front;
}

}  // namespace auxtrail::perfdata
