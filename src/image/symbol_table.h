// SymbolTable: the functions of one ELF file, sorted by address, for binary search.
//
// Sources: .symtab (of the separate debug file if there is one), else .dynsym; the PLT stubs as
// "name@plt". Of several names at one address the one a person would use is kept: global before
// weak before local, fewer leading underscores, then the shorter one.
//
// Code without a symbol still belongs to a function, which find_unnamed() tells
// (unwind_functions.h).
#pragma once

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <vector>

#include "image/symbolizer.h"

namespace auxtrail::image {

class SymbolTable {
 public:
  // Reads all symbols of `module`; the functions will say that they belong to `dso`.
  static SymbolTable read(Dwfl_Module* module, const Dso* dso, bool demangle_names);

  // The function that holds the ELF address, or nullptr.
  [[nodiscard]] const Function* find(uint64_t address) const;
  // The same among the functions whose names were stripped.
  [[nodiscard]] const Function* find_unnamed(uint64_t address) const;
  [[nodiscard]] const std::vector<Function>& functions() const { return functions_; }

 private:
  // Sorted by address, one per address; fixed once read.
  std::vector<Function> functions_;
  std::vector<Function> unnamed_;
};

}  // namespace auxtrail::image
