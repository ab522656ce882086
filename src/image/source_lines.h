// SourceLines: source lines and inlined frames of one ELF file, from its DWARF.
//
// The compilation units are indexed once (their ranges, not .debug_aranges, which clang leaves
// out); each address is looked up by libdw on demand.
#pragma once

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <vector>

#include "image/symbolizer.h"

namespace auxtrail::image {

class SourceLines {
 public:
  explicit SourceLines(Dwfl_Module* module);

  // Innermost inlined frame first; empty without debug info there. `address` in the ELF file's
  // numbering.
  std::vector<SourceFrame> frames(uint64_t address, bool demangle_names);

 private:
  struct UnitRange {
    uint64_t start;
    uint64_t end;
    Dwarf_Die unit;
  };
  Dwarf_Die* unit_at(uint64_t dwarf_address);

  uint64_t dwarf_shift_ = 0;       // dwarf address = ELF address + dwarf_shift_
  std::vector<UnitRange> ranges_;  // sorted by start
};

}  // namespace auxtrail::image
