// One event of a perf.data file: its attr, the ids its records carry, and its name.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>
#include <string>
#include <vector>

#include "abi/sample.h"

namespace auxtrail::perfdata {

struct Event {
  perf_event_attr attr{};
  std::vector<uint64_t> ids;
  std::string name;

  // Follows from attr; the reader fills it in, the writer ignores it.
  abi::SampleFormat format;
};

}  // namespace auxtrail::perfdata
