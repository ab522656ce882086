// Opening a perf.data file: header, attrs with their ids, feature sections. No records yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "perfdata/event.h"
#include "perfdata/features.h"
#include "perfdata/file_layout.h"
#include "perfdata/statistics.h"

namespace auxtrail::perfdata {

struct FileFront {
  std::vector<Event> events;  // names filled in
  Features features;
  FileSection data;  // clipped to what is in the file
  Statistics statistics;
};

Result<FileFront> read_front(std::span<const std::byte> file, const std::string& name);

}  // namespace auxtrail::perfdata
