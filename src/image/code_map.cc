// From a layout to file sections.
#include "image/code_map.h"

#include <algorithm>

namespace auxtrail::image {

CodeMap make_code_map(const Layout& layout, DsoTable& dsos) {
  CodeMap map;
  map.id = layout.id;
  for (const auto& mapping : layout.mappings) {
    const Dso& dso = dsos.resolve(mapping.dso);
    if (dso.file_path.empty() || mapping.file_offset >= dso.file_size_bytes) continue;
    const uint64_t in_file = dso.file_size_bytes - mapping.file_offset;
    const uint64_t size_bytes = std::min(mapping.end - mapping.start, in_file);
    map.sections.push_back({dso.file_path, mapping.file_offset, size_bytes, mapping.start});
  }
  return map;
}

}  // namespace auxtrail::image
