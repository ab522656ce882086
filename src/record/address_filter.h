// --filter: what part of the program the trace unit traces, in perf's words.
//
//   FILTERS := FILTER {("," | blank) FILTER}
//   FILTER  := ("filter" | "tracestop") PLACE ["/" (SIZE | PLACE)] "@" FILE
//   PLACE   := an offset in FILE, decimal or 0x hexadecimal
//            | SYMBOL ["#" N], surrounded by blanks; N: the N-th of that name by address, or 0, g,
//            G:
//              the global one
//            | "*", the whole file
//
// "filter" traces the region alone, "tracestop" ends the trace when the region is entered. perf's
// "start" and "stop" at single addresses are for other hardware: Intel PT, and the software unit
// like it, knows regions only.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace auxtrail::record {

struct FilterPlace {
  uint64_t number = 0;       // if symbol is empty
  std::string symbol;        // "*": the whole file
  std::optional<int> index;  // #N; 0: the global symbol; none: there must be one only
};

enum class FilterAction : uint8_t { kFilter, kTraceStop };

// As written.
struct FilterText {
  FilterAction action = FilterAction::kFilter;
  FilterPlace start;
  std::optional<FilterPlace> size;  // a number of bytes, or the symbol whose end is the region's
  std::string file;
};
// Errors: not that grammar, no file (that would be the kernel), a number as start without a size.
Result<std::vector<FilterText>> read_address_filters(std::string_view text);

// A region of a file's bytes, the form that the trace unit and the kernel take.
struct AddressFilter {
  FilterAction action = FilterAction::kFilter;
  std::string file;  // of choose_events(): absolute, without links
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

// Finds the bytes of a symbol (or of "*": from the first to the last) in a file.
struct FileRange {
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};
using FindSymbol =
    std::function<Result<FileRange>(const std::string& file, const FilterPlace& place)>;

// Errors: those of `find_symbol`, a region that is empty or ends before it starts.
Result<AddressFilter> resolve_filter(const FilterText& text, const FindSymbol& find_symbol);

// As perf hands it to the kernel: "filter 0x1040/0x80@/bin/x".
std::string filter_text(const AddressFilter& filter);
// All of them, with commas between.
std::string filters_text(const std::vector<AddressFilter>& filters);

}  // namespace auxtrail::record
