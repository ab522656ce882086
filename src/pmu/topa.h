// ToPA: the tables of output regions that a trace unit walks while it writes.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// An entry is one u64:
//
//    63..52   51..12        11..10  9..6         5  4     3  2    1  0
//    0        base >> 12    0       log2(size)-12 0  STOP  0  INT  0  END
//
// Regions follow each other through the AUX area, all of one size, so that a position in the area
// and a place in the tables are a division apart (the kernel's are as large as its allocator gave
// each, and have to be walked). A full table ends in an END entry that names the next one, the last
// names the first: the unit goes round for ever. A unit that takes only one region per table
// (no topa_multiple_entries) has tables of one region that name themselves, and whoever handles its
// interrupt moves it on. Reference: SDM volume 3, "Table of Physical Addresses (ToPA)".
#pragma once

#include <cstdint>

namespace auxtrail::pmu {

namespace topa {
inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint32_t kPageShift = 12;
inline constexpr uint32_t kLargestRegionShift = 27;  // 128 MiB
inline constexpr uint64_t kEnd = 1u << 0;
inline constexpr uint64_t kInt = 1u << 2;
inline constexpr uint64_t kStop = 1u << 4;
inline constexpr uint32_t kSizeShift = 6;
inline constexpr uint64_t kBaseMask = ((uint64_t{1} << 52) - 1) & ~(kPageBytes - 1);
inline constexpr uint64_t kEntriesPerTable = kPageBytes / sizeof(uint64_t);

[[nodiscard]] constexpr uint64_t region_entry(uint64_t base, uint32_t region_shift) {
  return (base & kBaseMask) | uint64_t{region_shift - kPageShift} << kSizeShift;
}
[[nodiscard]] constexpr uint64_t end_entry(uint64_t table) { return (table & kBaseMask) | kEnd; }
[[nodiscard]] constexpr uint64_t base_of(uint64_t entry) { return entry & kBaseMask; }
[[nodiscard]] constexpr uint64_t size_of(uint64_t entry) {
  return kPageBytes << ((entry >> kSizeShift) & 0xf);
}
}  // namespace topa

// Memory for the tables, given by whoever owns the unit: whole pages.
struct TopaMemory {
  uint64_t* words = nullptr;
  uint64_t size_bytes = 0;
};

class TopaTables {
 public:
  // How much memory the tables of an area need.
  [[nodiscard]] static uint64_t bytes_needed(uint64_t area_bytes, uint32_t region_shift,
                                             bool multiple_entries);

  // Fills `memory` with tables for the area at `area_base`. 0, EINVAL (area or memory not made of
  // whole pages or regions) or ENOMEM.
  [[nodiscard]] int build(const TopaMemory& memory, uint64_t area_base, uint64_t area_bytes,
                          uint32_t region_shift, bool multiple_entries);

  [[nodiscard]] uint64_t region_count() const { return region_count_; }
  [[nodiscard]] uint64_t region_bytes() const { return uint64_t{1} << region_shift_; }
  [[nodiscard]] uint32_t region_shift() const { return region_shift_; }
  [[nodiscard]] uint64_t& entry(uint64_t region) const {
    return words_[region / per_table_ * topa::kEntriesPerTable + region % per_table_];
  }
  // What OUTPUT_BASE and the table offset of OUTPUT_MASK_PTRS must be to write to `region`.
  [[nodiscard]] uint64_t table_of(uint64_t region) const {
    return address() + region / per_table_ * topa::kPageBytes;
  }
  [[nodiscard]] uint64_t index_of(uint64_t region) const { return region % per_table_; }
  // And back. False if that is none of our regions.
  [[nodiscard]] bool find(uint64_t table, uint64_t index, uint64_t& region) const;

 private:
  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(words_); }

  uint64_t* words_ = nullptr;
  uint64_t region_count_ = 0;
  uint64_t per_table_ = 1;
  uint32_t region_shift_ = topa::kPageShift;
};

}  // namespace auxtrail::pmu
