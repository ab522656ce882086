// A file as `perf script -D` tells it and as our reader sees it, in one text form, to be compared.
#pragma once

#include <string>
#include <vector>

#include "perfdata/reader.h"
#include "perfdata/testing/command.h"

namespace auxtrail::perfdata::testing {

struct Dump {
  std::vector<std::string>
      kernel;  // one line per record in delivery order; lines of arrays behind samples
  std::vector<std::string> tools;  // records of type >= 64
  uint64_t samples = 0;
};

// What Linux perf makes of the file; `path` may be relative to the scratch directory.
Dump perf_dump(const ScratchDirectory& scratch, const std::string& path);
// What for_each_ordered() delivers.
Dump our_dump(Reader& reader);

// "" if equal, else the first difference.
std::string difference(const std::vector<std::string>& theirs,
                       const std::vector<std::string>& ours);

}  // namespace auxtrail::perfdata::testing
