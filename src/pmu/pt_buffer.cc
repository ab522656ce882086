#include "pmu/pt_buffer.h"

#include <cerrno>

#include "event/aux_area.h"

namespace auxtrail::pmu {
namespace {

constexpr uint64_t kMaskPtrsLowBits = 0x7f;  // always ones
constexpr uint32_t kTableOffsetShift = 7;
constexpr uint32_t kOutputOffsetShift = 32;

uint32_t lowest_bit(uint64_t value) { return static_cast<uint32_t>(__builtin_ctzll(value)); }

uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

// The largest regions that alignment and size of the area allow.
uint32_t region_shift_for(uint64_t base, uint64_t size_bytes, uint32_t max_shift) {
  const uint32_t natural = lowest_bit(base | size_bytes);
  return smaller(smaller(natural, max_shift), topa::kLargestRegionShift);
}

}  // namespace

int PtBuffer::setup(const event::AuxArea& area, const abi::PtCaps& caps,
                    const PtBufferConfig& config) {
  base_ = reinterpret_cast<uint64_t>(area.bytes());
  size_bytes_ = area.size_bytes();
  snapshot_ = config.snapshot;
  multiple_entries_ = caps.topa_multiple_entries;
  stop_entry_ = interrupt_entry_ = nullptr;
  single_ = snapshot_ && caps.single_range_output && size_bytes_ == topa::kPageBytes;
  if (single_) return base_ % topa::kPageBytes == 0 ? 0 : EINVAL;
  if (!caps.topa_output) return EINVAL;

  uint32_t shift = region_shift_for(base_, size_bytes_, config.max_region_shift);
  if (!multiple_entries_ && snapshot_) {
    // Nobody is there to move the unit on to another table.
    shift = lowest_bit(size_bytes_);
    if (shift > topa::kLargestRegionShift || (base_ & (size_bytes_ - 1)) != 0) return EINVAL;
  }
  const int error = tables_.build(config.tables, base_, size_bytes_, shift, multiple_entries_);
  if (error != 0 || snapshot_ || multiple_entries_) return error;
  for (uint64_t region = 0; region < tables_.region_count(); ++region) {
    tables_.entry(region) |= topa::kStop | topa::kInt;
  }
  return 0;
}

PtPosition PtBuffer::position_at(uint64_t head) const {
  const uint64_t offset = head & (size_bytes_ - 1);
  if (single_) return {0, offset};
  return {offset >> tables_.region_shift(), offset & (tables_.region_bytes() - 1)};
}

uint64_t PtBuffer::offset_of(const PtPosition& position) const {
  return single_ ? position.offset : (position.region << tables_.region_shift()) + position.offset;
}

PtPosition PtBuffer::next_region(const PtPosition& position) const {
  const uint64_t next = position.region + 1;
  return {next == tables_.region_count() ? 0 : next, 0};
}

void PtBuffer::program(const TraceUnit& unit, const PtPosition& position) const {
  const uint64_t base = single_ ? base_ : tables_.table_of(position.region);
  const uint64_t mask_or_index =
      single_ ? size_bytes_ - 1 : tables_.index_of(position.region) << kTableOffsetShift;
  unit.write(unit.self, PtRegister::kOutputBase, base);
  unit.write(unit.self, PtRegister::kOutputMaskPtrs,
             kMaskPtrsLowBits | mask_or_index | position.offset << kOutputOffsetShift);
}

bool PtBuffer::read(const TraceUnit& unit, PtPosition& position) const {
  const uint64_t base = unit.read(unit.self, PtRegister::kOutputBase);
  const uint64_t mask_ptrs = unit.read(unit.self, PtRegister::kOutputMaskPtrs);
  const uint64_t index = (mask_ptrs & 0xffffffff) >> kTableOffsetShift;
  PtPosition found{0, mask_ptrs >> kOutputOffsetShift};
  if (single_ ? base != base_ : !tables_.find(base, index, found.region)) return false;
  if (found.offset > region_bytes()) return false;
  position = found;
  return true;
}

uint64_t& PtBuffer::entry_before(uint64_t boundary) {
  return tables_.entry(((boundary - 1) & (size_bytes_ - 1)) >> tables_.region_shift());
}

void PtBuffer::clear_marks() {
  if (stop_entry_ != nullptr) *stop_entry_ &= ~(topa::kStop | topa::kInt);
  if (interrupt_entry_ != nullptr) *interrupt_entry_ &= ~topa::kInt;
}

int PtBuffer::set_marks(uint64_t head, uint64_t free_bytes, uint64_t wakeup) {
  const uint64_t region = region_bytes();
  const uint64_t stop_at = (head + free_bytes) & ~(region - 1);
  if (stop_at <= head) return EINVAL;
  if (!multiple_entries_) return 0;  // every region has both marks, always
  clear_marks();
  // The first region's end at or after the watermark; before the stop if there is another.
  uint64_t interrupt_at = (wakeup + region - 1) & ~(region - 1);
  if (interrupt_at >= stop_at) interrupt_at = stop_at - region;
  if (interrupt_at <= head) interrupt_at = (head & ~(region - 1)) + region;
  stop_entry_ = &entry_before(stop_at);
  interrupt_entry_ = &entry_before(interrupt_at);
  *stop_entry_ |= topa::kStop | topa::kInt;
  *interrupt_entry_ |= topa::kInt;
  return 0;
}

}  // namespace auxtrail::pmu
