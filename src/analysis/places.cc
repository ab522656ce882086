#include "analysis/places.h"

#include <fmt/format.h>

namespace auxtrail::analysis {

std::string_view Place::dso_name() const {
  return dso != nullptr ? dso->short_name() : image::kUnknown;
}

std::string_view Place::function_name() const {
  return function != nullptr ? std::string_view(function->name) : image::kUnknown;
}

Places::Places(image::Symbolizer& symbolizer, PlaceParts parts)
    : symbolizer_(symbolizer), parts_(parts), cache_(size_t{1} << kCacheBits) {}

uint32_t Places::at(const image::Layout& layout, uint64_t address) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
  CacheEntry& entry = cache_[address * kGolden >> (64 - kCacheBits)];
  if (entry.address != address || entry.layout_id != layout.id) {
    entry = {address, layout.id, find(layout, address)};
  }
  return entry.number;
}

uint32_t Places::find(const image::Layout& layout, uint64_t address) {
  Place place;
  if (parts_.dso || parts_.function || parts_.line) {
    const image::Location location = symbolizer_.locate(layout, address);
    if (parts_.dso) place.dso = location.dso;
    if (parts_.function) {
      place.function = location.function != nullptr ? location.function : location.unnamed;
    }
    if (parts_.line) place.line = source_line(symbolizer_, location);
  }
  const auto [found, is_new] =
      numbers_.try_emplace({place.dso, place.function, place.line}, places_.size());
  if (is_new) places_.push_back(std::move(place));
  return found->second;
}

std::string source_line(image::Symbolizer& symbolizer, const image::Location& location) {
  const auto& frames = symbolizer.source(location);
  if (frames.empty() || frames.front().line == 0) return {};
  const std::string& file = frames.front().file;
  return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), frames.front().line);
}

}  // namespace auxtrail::analysis
