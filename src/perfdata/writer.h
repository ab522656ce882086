// Writes a perf.data file that is readable at any moment.
//
//   auto writer = Writer::create("perf.data", events, {});
//   writer->append(record_bytes);           // from rings or from append_*(): whole records
//   writer->finished_round();               // after each drain of all rings
//   writer->write_features_and_close(features);
//
// Records are gathered in a buffer and go to the file when it is full or on flush(). A flush first
// takes the feature table off the header, then writes records and a minimal feature table, then
// updates the header: whenever the recorder dies, the header describes records that are wholly in
// the file. A failed flush (disk full) cuts the file back to the last complete flush and is
// reported; the writer then refuses all further records, and write_features_and_close() still
// leaves a valid file. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "abi/sample_layout.h"
#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "perfdata/event.h"
#include "perfdata/features.h"
#include "perfdata/user_records.h"

namespace auxtrail::perfdata {

struct WriterOptions {
  size_t buffer_bytes = size_t{1} << 20;  // a flush happens when this much has gathered
  bool auxtrace = true;                   // set the AUXTRACE feature: the file holds trace data
};

class Writer {
 public:
  // Creates the file (mode 0600, an old one is cut to nothing) and writes header, ids and attrs.
  // Each event needs at least one id, none of them 0, all different, and all events must have their
  // id at the same place (IDENTIFIER, or ID at one position); EVENT_DESC takes Event::name, or
  // event_name(attr) if empty.
  static Result<Writer> create(const std::string& path, std::vector<Event> events,
                               WriterOptions options = {});
  // The same on a descriptor open for reading and writing, seekable and empty; `name` is for
  // messages.
  static Result<Writer> create(UniqueFd fd, const std::string& name, std::vector<Event> events,
                               WriterOptions options = {});

  Writer(Writer&&) noexcept = default;
  Writer& operator=(Writer&&) noexcept = default;
  // Flushes what is buffered, as far as possible. Errors are lost: call write_features_and_close().
  ~Writer();

  // Appends whole records, one after the other. Bytes that are not (a header.size below 8 or past
  // the end) are refused altogether and change nothing; unlike failures of writing, the writer
  // stays usable.
  Status append(std::span<const std::byte> records);
  // The same for records that lie in two pieces, as in a ring that wraps.
  Status append(std::span<const std::byte> first, std::span<const std::byte> second);
  // Appends an AUXTRACE record and its payload (padded to 8 bytes), and its entry in the index. The
  // payload should end between packets: Linux perf can't read one that goes on in the next record.
  Status append_auxtrace(AuxtraceRecord auxtrace, std::span<const std::byte> payload);
  // The same for a payload in two pieces, as in an AUX area that wraps.
  Status append_auxtrace(AuxtraceRecord auxtrace, std::span<const std::byte> first,
                         std::span<const std::byte> second);
  Status finished_round();
  // Puts all that was appended into the file. Cheap enough to be called about once a second.
  Status flush();

  // Flushes, writes the feature sections, closes. Even after a failed flush it completes the file
  // as well as the disk allows; then it returns that first error. EVENT_DESC, AUXTRACE, and
  // SAMPLE_TIME if the caller gave none, are filled in here.
  Status write_features_and_close(Features features);

  [[nodiscard]] const std::vector<Event>& events() const { return events_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // Bytes of the data section so far, buffered ones included.
  [[nodiscard]] uint64_t data_bytes() const { return flushed_bytes_ + buffer_.size(); }
  [[nodiscard]] uint64_t file_bytes() const { return data_offset_ + data_bytes(); }
  [[nodiscard]] uint64_t sample_count() const { return sample_count_; }
  // Times of the first and last sample appended; nothing if no sample or no common place of TIME.
  [[nodiscard]] std::optional<std::pair<uint64_t, uint64_t>> sample_time_ns() const;
  // The first failure of writing, if any.
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }

 private:
  Writer(UniqueFd fd, std::string name, std::vector<Event> events, WriterOptions options);
  Status write_front();
  Status accept_tail(size_t old_size);
  void note_record(std::span<const std::byte> record);
  Status write_header(bool with_features);
  Status write_records();
  Status write_feature_sections(
      const std::vector<std::pair<uint32_t, std::vector<std::byte>>>& sections);
  Status fall_back(Error error);

  UniqueFd fd_;
  std::string name_;
  std::vector<Event> events_;
  WriterOptions options_;
  ByteWriter buffer_;
  uint64_t attrs_offset_ = 0;
  uint64_t data_offset_ = 0;
  uint64_t flushed_bytes_ = 0;
  uint64_t feature_bits_ = 0;
  uint64_t sample_count_ = 0;
  size_t time_offset_ = abi::kNoOffset;
  uint64_t first_time_ns_ = ~uint64_t{0};
  uint64_t last_time_ns_ = 0;
  std::vector<AuxtraceIndexEntry> auxtrace_index_;
  std::optional<Error> failure_;
};

}  // namespace auxtrail::perfdata
