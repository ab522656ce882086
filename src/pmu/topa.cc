#include "pmu/topa.h"

#include <cerrno>

namespace auxtrail::pmu {
namespace {

constexpr uint64_t regions_per_table(bool multiple_entries) {
  return multiple_entries ? topa::kEntriesPerTable - 1 : 1;
}

constexpr bool is_aligned(uint64_t value, uint64_t to) { return (value & (to - 1)) == 0; }

}  // namespace

uint64_t TopaTables::bytes_needed(uint64_t area_bytes, uint32_t region_shift,
                                  bool multiple_entries) {
  const uint64_t per_table = regions_per_table(multiple_entries);
  const uint64_t regions = area_bytes >> region_shift;
  return (regions + per_table - 1) / per_table * topa::kPageBytes;
}

int TopaTables::build(const TopaMemory& memory, uint64_t area_base, uint64_t area_bytes,
                      uint32_t region_shift, bool multiple_entries) {
  if (region_shift < topa::kPageShift || region_shift > topa::kLargestRegionShift) return EINVAL;
  const uint64_t region_bytes = uint64_t{1} << region_shift;
  if (area_bytes == 0 || !is_aligned(area_base | area_bytes, region_bytes)) return EINVAL;
  const auto words = reinterpret_cast<uint64_t>(memory.words);
  if (memory.words == nullptr || !is_aligned(words, topa::kPageBytes)) return EINVAL;
  if (memory.size_bytes < bytes_needed(area_bytes, region_shift, multiple_entries)) return ENOMEM;

  words_ = memory.words;
  region_shift_ = region_shift;
  region_count_ = area_bytes >> region_shift;
  per_table_ = regions_per_table(multiple_entries);
  for (uint64_t region = 0; region < region_count_; ++region) {
    entry(region) = topa::region_entry(area_base + (region << region_shift), region_shift);
    const bool ends_table = index_of(region) + 1 == per_table_ || region + 1 == region_count_;
    if (!ends_table) continue;
    const uint64_t next = region + 1 == region_count_ ? 0 : region + 1;
    (&entry(region))[1] = topa::end_entry(table_of(multiple_entries ? next : region));
  }
  return 0;
}

bool TopaTables::find(uint64_t table, uint64_t index, uint64_t& region) const {
  if (table < address() || !is_aligned(table, topa::kPageBytes)) return false;
  const uint64_t number = (table - address()) / topa::kPageBytes;
  if (index >= per_table_ || number > region_count_ / per_table_) return false;
  region = number * per_table_ + index;
  return region < region_count_;
}

}  // namespace auxtrail::pmu
