// Places: numbers for the places of code that a profile tells apart, looked up by address.
//
// Which parts of a place count is chosen at the start: only the file, the function, the source
// line. Addresses repeat millions of times, so an answer is remembered per address and layout.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "image/symbolizer.h"

namespace auxtrail::analysis {

struct PlaceParts {
  bool dso = true;
  bool function = true;
  bool line = false;
};

struct Place {
  const image::Dso* dso = nullptr;            // nullptr: unknown, or not asked for
  const image::Function* function = nullptr;  // the same
  std::string line;                           // "file.c:12"; empty: unknown, or not asked for

  [[nodiscard]] std::string_view dso_name() const;
  [[nodiscard]] std::string_view function_name() const;
};

// Not thread-safe. The symbolizer must outlive it.
class Places {
 public:
  Places(image::Symbolizer& symbolizer, PlaceParts parts);

  // The number of the place at `address`: the same number for the same place. Counts from 0.
  uint32_t at(const image::Layout& layout, uint64_t address);

  [[nodiscard]] const Place& operator[](uint32_t number) const { return places_[number]; }
  [[nodiscard]] size_t size() const { return places_.size(); }

 private:
  static constexpr size_t kCacheBits = 15;
  struct CacheEntry {
    uint64_t address = 0;
    uint64_t layout_id = ~uint64_t{0};
    uint32_t number = 0;
  };
  uint32_t find(const image::Layout& layout, uint64_t address);

  image::Symbolizer& symbolizer_;
  PlaceParts parts_;
  std::vector<CacheEntry> cache_;  // by a hash of the address
  std::vector<Place> places_;
  std::map<std::tuple<const image::Dso*, const image::Function*, std::string>, uint32_t> numbers_;
};

// "file.c:12" of the innermost frame, the file's folders left out; empty without debug info.
std::string source_line(image::Symbolizer& symbolizer, const image::Location& location);

}  // namespace auxtrail::analysis
