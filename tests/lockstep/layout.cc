// See layout.h.
#include "layout.h"

#include <algorithm>
#include <utility>

namespace auxtrail::lockstep {
namespace {

bool Contains(const std::vector<MapLine>& lines, uint64_t address) {
  return std::any_of(lines.begin(), lines.end(),
                     [address](const MapLine& line) { return line.contains(address); });
}

bool SameSections(const image::CodeMap& left, const image::CodeMap& right) {
  return std::equal(left.sections.begin(), left.sections.end(), right.sections.begin(),
                    right.sections.end(), [](const auto& a, const auto& b) {
                      return a.file == b.file && a.offset == b.offset && a.address == b.address &&
                             a.size_bytes == b.size_bytes;
                    });
}

uint64_t next_code_id = 1;

}  // namespace

Layout::Layout(const Tracee& tracee, std::string unit_path)
    : tracee_(tracee), unit_path_(std::move(unit_path)) {
  refresh();
}

void Layout::refresh() {
  program_code_.clear();
  unit_code_.clear();
  writable_.clear();
  image::CodeMap code;
  bool in_unit = false;
  for (const auto& line : tracee_.maps()) {
    const bool file = !line.path.empty() && line.path[0] == '/';
    const bool continues = line.path.empty() && in_unit;  // the unit's .bss
    in_unit = line.path == unit_path_ || (continues && line.writable());
    if (in_unit) {
      if (line.executable()) unit_code_.push_back(line);
      continue;
    }
    if (line.executable() && file) {
      program_code_.push_back(line);
      code.sections.push_back({line.path, line.offset, line.end - line.start, line.start});
    }
    if (line.writable() && line.readable() && line.is_private()) writable_.push_back(line);
  }
  if (SameSections(code, code_)) return;
  code_ = std::move(code);
  code_.id = next_code_id++;
}

bool Layout::is_program_code(uint64_t address) const { return Contains(program_code_, address); }

bool Layout::is_unit_code(uint64_t address) const { return Contains(unit_code_, address); }

}  // namespace auxtrail::lockstep
