#include "record/code_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <optional>
#include <span>

#include "perfdata/elf_build_id.h"

namespace auxtrail::record {
namespace {

constexpr std::string_view kVdso = "[vdso]";

// The recorder's own vdso, as large as /proc/self/maps says.
std::span<const std::byte> vdso_image() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long start = 0;
    unsigned long end = 0;
    if (line.find(kVdso) == std::string::npos ||
        std::sscanf(line.c_str(), "%lx-%lx", &start, &end) != 2) {
      continue;
    }
    return {reinterpret_cast<const std::byte*>(start), end - start};
  }
  return {};
}

}  // namespace

void CodeFiles::note(const abi::MmapRecord& mapping) {
  if (!mapping.executable() || mapping.path.empty()) return;
  if (mapping.path == kVdso) {
    vdso_ = true;
    return;
  }
  if (mapping.path.front() != '/' || mapping.path.substr(0, 2) == "//") return;
  paths_.emplace(mapping.path);
}

std::vector<perfdata::BuildId> CodeFiles::build_ids() const {
  std::vector<perfdata::BuildId> result;
  for (const std::string& path : paths_) {
    auto id = perfdata::elf_build_id(path);
    if (id) result.push_back({std::move(*id), path});
  }
  if (vdso_) {
    auto id = perfdata::elf_build_id(vdso_image());
    if (id) result.push_back({std::move(*id), std::string(kVdso)});
  }
  std::sort(result.begin(), result.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return result;
}

}  // namespace auxtrail::record
