// What was odd about a perf.data file, counted. None of it stops the reading.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace auxtrail::perfdata {

struct Statistics {
  uint64_t records = 0;                  // delivered
  std::map<uint32_t, uint64_t> by_type;  // the same by record type
  uint64_t samples = 0;
  uint64_t unknown_records = 0;         // of a type this code does not know; delivered all the same
  uint64_t unknown_event_ids = 0;       // records whose id belongs to no attr
  uint64_t malformed_records = 0;       // fields reach past the record's end
  uint64_t bad_size_records = 0;        // header.size below 8: the rest of the data was skipped
  uint64_t truncated_bytes = 0;         // at the end: the last record is not whole
  uint64_t undecompressed_records = 0;  // COMPRESSED records that could not be unpacked
  uint64_t out_of_order_records = 0;    // older than what was already delivered
  uint64_t lost_records = 0;            // LOST: records that the kernel or the unit dropped
  uint64_t lost_samples = 0;            // LOST_SAMPLES
  uint64_t throttles = 0;
  uint64_t aux_truncated = 0;      // AUX records with flag TRUNCATED
  uint64_t aux_partial = 0;        // AUX records with flag PARTIAL
  uint64_t aux_collisions = 0;     // AUX records with flag COLLISION
  uint64_t bad_features = 0;       // feature sections that lie outside the file or are malformed
  bool data_size_missing = false;  // the recorder died before it wrote the size of the data
  bool data_size_beyond_file = false;  // the file is shorter than its header says

  // One line per kind of problem, for the end of a command's output; empty if all is well.
  [[nodiscard]] std::vector<std::string> messages() const;
};

}  // namespace auxtrail::perfdata
