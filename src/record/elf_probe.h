// The few facts about a program file that decide whether the software trace unit can reach it.
//
// Reads only the ELF header, the program headers and what PT_INTERP points to. Nothing in the file
// is trusted: every offset is checked against what could be read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace auxtrail::record {

struct ElfFacts {
  bool is_64bit = false;
  uint16_t machine = 0;     // EM_*
  uint16_t type = 0;        // ET_*
  std::string interpreter;  // PT_INTERP; empty: statically linked (or the loader itself)
};

// nullopt: a readable file that is no ELF. Error: the file cannot be opened or read, or its program
// headers lie outside of it.
Result<std::optional<ElfFacts>> probe_elf(const std::string& path);

}  // namespace auxtrail::record
