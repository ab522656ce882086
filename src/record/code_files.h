// CodeFiles: the files whose code was mapped in a session, and their build ids.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "abi/side_band.h"
#include "perfdata/features.h"

namespace auxtrail::record {

class CodeFiles {
 public:
  // Remembers the file of an executable mapping; anonymous and special memory is left out.
  void note(const abi::MmapRecord& mapping);

  // Whether code of that file was mapped.
  [[nodiscard]] bool has(const std::string& path) const { return paths_.count(path) != 0; }

  // Build ids of all of them that still exist and have one, the vdso's included if it was mapped
  // (it is this kernel's, the same for every process).
  [[nodiscard]] std::vector<perfdata::BuildId> build_ids() const;

 private:
  std::unordered_set<std::string> paths_;
  bool vdso_ = false;
};

}  // namespace auxtrail::record
