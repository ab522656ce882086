#include "perfdata/statistics.h"

#include <fmt/format.h>

#include <string_view>

namespace auxtrail::perfdata {

std::vector<std::string> Statistics::messages() const {
  struct Line {
    uint64_t count;
    std::string_view text;
  };
  const Line lines[] = {
      {lost_records, "records lost while recording"},
      {lost_samples, "samples lost while recording"},
      {throttles, "times throttled by the kernel"},
      {aux_truncated, "AUX transfers truncated"},
      {aux_partial, "AUX transfers with gaps"},
      {aux_collisions, "AUX transfers that collided with another sample"},
      {unknown_records, "records of an unknown type skipped"},
      {unknown_event_ids, "records with an id that belongs to no event"},
      {malformed_records, "malformed records skipped"},
      {bad_size_records, "impossible record sizes; the data behind was skipped"},
      {undecompressed_records, "compressed records that could not be unpacked"},
      {out_of_order_records, "records out of time order"},
      {bad_features, "feature sections unreadable"},
      {truncated_bytes, "bytes of an incomplete record at the end of the data"},
  };
  std::vector<std::string> texts;
  for (const Line& line : lines) {
    if (line.count != 0) texts.push_back(fmt::format("{} {}", line.count, line.text));
  }
  if (data_size_missing) {
    texts.emplace_back("the recorder ended early: the header has no data size, read to the end");
  }
  if (data_size_beyond_file) {
    texts.emplace_back("the file is shorter than its header says");
  }
  return texts;
}

}  // namespace auxtrail::perfdata
