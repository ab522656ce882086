// Reads perf.data files: our own and Linux perf's, any attr size, records of any kernel.
//
//   auto reader = Reader::open("perf.data");
//   for (const Event& event : reader->events()) ...
//   reader->for_each_ordered([&](const DataRecord& record) {
//     if (record.record.type == PERF_RECORD_SAMPLE) {
//       abi::Sample sample;
//       if (reader->parse_sample(record, sample)) ...
//     }
//     return true;                                        // false: stop
//   });
//   for (const std::string& line : reader->statistics().messages()) ...
//
// What is wrong with the file as a whole (no perf.data, pipe mode, other byte order, attrs outside
// the file) is an Error; what is odd about its data is counted in statistics(). The bytes are never
// trusted: every offset and size is checked. The file is mapped, and records are views into the
// map: they live as long as the Reader. Records unpacked from COMPRESSED ones live only during the
// callback. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "abi/record.h"
#include "abi/sample.h"
#include "abi/side_band.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "perfdata/event.h"
#include "perfdata/features.h"
#include "perfdata/statistics.h"
#include "perfdata/user_records.h"

namespace auxtrail::perfdata {

// A record with its place in the file and what the file's attrs say about it.
struct DataRecord {
  abi::Record record;
  uint64_t file_offset = 0;            // of the record, or of the COMPRESSED record that held it
  std::span<const std::byte> payload;  // the data that follows an AUXTRACE record
  const Event* event = nullptr;  // whose attr governs the record; null: unknown id, or type >= 64
  uint64_t time_ns = 0;          // 0: the record has no time
  bool unpacked = false;         // came out of a COMPRESSED record
};

// Returns false to stop the iteration.
using RecordVisitor = std::function<bool(const DataRecord&)>;

struct ReaderOptions {
  // for_each_ordered() holds back at most this many records while it waits for the end of a round;
  // then it delivers the older half.
  size_t max_pending_records = size_t{8} << 20;
};

class Reader {
 public:
  static Result<Reader> open(const std::string& path, ReaderOptions options = {});
  // Over bytes that stay alive and unchanged as long as the Reader.
  static Result<Reader> from_bytes(std::span<const std::byte> bytes, const std::string& name,
                                   ReaderOptions options = {});

  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  ~Reader();

  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] const std::vector<Event>& events() const;  // never empty; names are filled in
  [[nodiscard]] const Event* event_by_id(uint64_t id) const;
  [[nodiscard]] const Features& features() const;
  // The first AUXTRACE_INFO record of the data, if any (looked for when first asked).
  [[nodiscard]] const std::optional<AuxtraceInfo>& auxtrace_info();
  [[nodiscard]] uint64_t data_offset() const;
  [[nodiscard]] uint64_t data_bytes() const;  // that are in the file
  [[nodiscard]] uint64_t file_bytes() const;

  // Every record in file order, COMPRESSED ones replaced by what they hold. Statistics start
  // afresh.
  void for_each(const RecordVisitor& visitor);
  // The same in order of time, as Linux perf delivers them: records of perf's own and records
  // without a time come at once, the others when a FINISHED_ROUND says that nothing older can
  // follow. Stable.
  void for_each_ordered(const RecordVisitor& visitor);
  // Every record as it lies in the file: COMPRESSED records stay packed. For dumping.
  void for_each_raw(const RecordVisitor& visitor);

  // Parses a sample by its event's format; an unparsable one is counted and gives false.
  bool parse_sample(const DataRecord& record, abi::Sample& sample);
  // Parses a side-band record (any struct of abi/side_band.h), counting what cannot be parsed.
  template <class SideBand>
  bool parse(const DataRecord& record, SideBand& out) {
    return count(abi::parse(record.record, format_of(record), out));
  }

  // Counts of the last (or running) iteration and of the opening of the file.
  [[nodiscard]] const Statistics& statistics() const;

 private:
  class Impl;
  explicit Reader(std::unique_ptr<Impl> impl);
  bool count(abi::ParseStatus status);
  [[nodiscard]] const abi::SampleFormat& format_of(const DataRecord& record) const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace auxtrail::perfdata
