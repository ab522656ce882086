// The functions of an ELF file by name: which bytes of the file they are. For address filters,
// where every alias counts and nothing is demangled.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace auxtrail::image {

struct SymbolRange {
  uint64_t offset = 0;  // in the file
  uint64_t size_bytes = 0;
  bool global = false;  // not static
};

// All functions of this name, "*": all of them, by address; of .symtab if the file has one, else of
// .dynsym. Symbols without a size reach to the next one. Errors: no readable ELF file.
Result<std::vector<SymbolRange>> find_symbol_ranges(const std::string& path, std::string_view name);

}  // namespace auxtrail::image
