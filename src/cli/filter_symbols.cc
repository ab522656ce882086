#include "cli/filter_symbols.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "image/symbol_ranges.h"

namespace auxtrail::cli {
namespace {

using image::SymbolRange;

tl::unexpected<Error> bad(const std::string& file, std::string why, std::string fix) {
  return fail({"find the filter's function", file, std::move(why), std::move(fix)});
}

record::FileRange all_of(const std::vector<SymbolRange>& ranges) {
  uint64_t end = 0;
  for (const SymbolRange& range : ranges) end = std::max(end, range.offset + range.size_bytes);
  return {ranges.front().offset, end - ranges.front().offset};
}

}  // namespace

Result<record::FileRange> find_filter_symbol(const std::string& file,
                                             const record::FilterPlace& place) {
  AUXTRAIL_ASSIGN(auto found, image::find_symbol_ranges(file, place.symbol));
  if (place.index == 0) {
    found.erase(std::remove_if(found.begin(), found.end(),
                               [](const SymbolRange& range) { return !range.global; }),
                found.end());
  }
  if (found.empty()) {
    return bad(file, fmt::format("it has no function \"{}\"", place.symbol),
               "see nm for its names, or give an offset");
  }
  if (place.symbol == "*") return all_of(found);
  const size_t index = place.index && *place.index > 0 ? static_cast<size_t>(*place.index) : 1;
  if (!place.index && found.size() > 1) {
    return bad(file, fmt::format("it has {} functions \"{}\"", found.size(), place.symbol),
               fmt::format("choose with #1 to #{}", found.size()));
  }
  if (index > found.size()) {
    return bad(file, fmt::format("it has {} functions \"{}\"", found.size(), place.symbol),
               fmt::format("use #1 to #{}", found.size()));
  }
  return record::FileRange{found[index - 1].offset, found[index - 1].size_bytes};
}

}  // namespace auxtrail::cli
