// Symbolizer: from an address of a process to a function, and on demand to source lines and inlined
// frames.
//
//   locate():  one binary search in a table per DSO, built once from .symtab, .dynsym and the PLT
//   of the file
//              and of its separate debug file (build id, .gnu_debuglink, /usr/lib/debug). 10^6 a
//              second.
//   source():  libdw, and only when asked. Results are cached per address.
//
// Nothing here fails: no file, no symbols or no debug info give a Location without a function or an
// empty list of frames. debuginfod is asked only if the user has set DEBUGINFOD_URLS.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "image/address_space.h"

namespace auxtrail::image {

// A symbol of a DSO. Its address is the pointer's identity: reports may group by it.
struct Function {
  std::string name;      // demangled: "std::vector<int>::push_back", "memcpy@plt"
  std::string raw_name;  // as in the ELF file
  const Dso* dso = nullptr;
  uint64_t address = 0;  // the ELF file's numbering
  uint64_t size_bytes = 0;
};

struct Location {
  const Function* function = nullptr;  // nullptr: print kUnknown
  const Dso* dso = nullptr;            // nullptr: no mapping there
  uint64_t dso_address = 0;            // the ELF file's numbering; the plain address without a DSO
  // Without `function`: the one that is known from unwind information alone, and by a name that
  // says its place, "[gzip+0x4a30]". Reports tell such functions apart; perf's text does not.
  const Function* unnamed = nullptr;
  // Bytes from the function's start; 0 without a function.
  [[nodiscard]] uint64_t offset() const { return function ? dso_address - function->address : 0; }
  [[nodiscard]] std::string_view function_name() const;
  [[nodiscard]] std::string_view dso_name() const;
};

inline constexpr std::string_view kUnknown = "[unknown]";

// One frame at an address: the innermost inlined function first, the real function last.
struct SourceFrame {
  std::string function;  // demangled
  std::string file;      // as the compiler recorded it; may be empty
  int line = 0;          // 0: unknown
  bool inlined = false;
};

struct SymbolizerOptions {
  bool demangle = true;
};

// Not thread safe. `dsos` must outlive it; the pointers handed out live as long as the Symbolizer.
class Symbolizer {
 public:
  explicit Symbolizer(DsoTable& dsos, SymbolizerOptions options = {});
  ~Symbolizer();

  Location locate(const Layout& layout, uint64_t address);
  Location locate(const Dso* dso, uint64_t file_offset);

  // Empty without debug info. The reference lives until the Symbolizer ends.
  const std::vector<SourceFrame>& source(const Location& location);

 private:
  struct Module;
  Module& module(const Dso* dso);
  DsoTable& dsos_;
  SymbolizerOptions options_;
  std::unordered_map<const Dso*, std::unique_ptr<Module>> modules_;
};

}  // namespace auxtrail::image
