// See address_filters.h. Signal safe; compiled without vector registers.
#include "unit/address_filters.h"

#include "abi/intel_pt.h"
#include "event/event.h"
#include "pmu/pt_filters.h"

namespace auxtrail::unit {

using event::AddrFilterAction;
using event::AddrRange;

AddressFilters address_filters;

AddressRange TracedRanges::around(uint64_t pc) const {
  AddressRange same{0, ~uint64_t{0}};
  const auto cut = [&same, pc](uint64_t border) {
    if (border <= pc && border > same.start) same.start = border;
    if (border > pc && border < same.end) same.end = border;
  };
  for (uint32_t i = 0; i < count_; ++i) {
    if (ranges_[i].start == ranges_[i].end) continue;
    cut(ranges_[i].start);
    cut(ranges_[i].end);
  }
  return same;
}

bool AddressFilters::set(const channel::SessionConfig& config) {
  if (active()) return true;
  if (config.filter_bytes == 0) return true;
  if (config.filter_bytes > sizeof config.filters || config.continuous == 0) return false;
  // counting.cc writes packets of all that it samples.
  for (uint32_t i = 0; i < config.sampler_count; ++i) {
    if (is_counted(config.samplers[i])) return false;
  }
  event::Event leader;
  leader.attr.exclude_kernel = 1;
  leader.task = 1;  // files are mapped in a process
  if (event::parse_addr_filters(config.filters, config.filter_bytes, leader, parsed_) != 0 ||
      pmu::check_pt_filters(parsed_, abi::kSoftwareUnitCaps) != 0) {
    parsed_.count = 0;
    return false;
  }
  for (TracedRanges& ranges : ranges_) {
    ranges.count_ = parsed_.count;
    for (uint32_t i = 0; i < parsed_.count; ++i) {
      ranges.stops_[i] = parsed_.filters[i].action == AddrFilterAction::kStop;
      ranges.filters_ |= !ranges.stops_[i];
    }
  }
  return true;
}

TracedRanges AddressFilters::ranges() const {
  for (;;) {
    const uint32_t before = __atomic_load_n(&current_, __ATOMIC_ACQUIRE);
    const TracedRanges copy = ranges_[before & 1];
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (__atomic_load_n(&current_, __ATOMIC_RELAXED) == before) return copy;
  }
}

void AddressFilters::begin_mappings() {
  for (uint32_t i = 0; i < parsed_.count; ++i) parsed_.ranges[i] = {};
}

void AddressFilters::add_mapping(const char* path, uint64_t start, uint64_t end,
                                 uint64_t file_offset) {
  if (!active()) return;
  AddrRange before[event::kMaxAddrFilters];
  for (uint32_t i = 0; i < parsed_.count; ++i) before[i] = parsed_.ranges[i];
  uint32_t path_bytes = 0;
  while (path[path_bytes] != 0) ++path_bytes;
  if (event::map_addr_filters(parsed_, {path, path_bytes, start, end - start, file_offset}) == 0) {
    return;
  }
  for (uint32_t i = 0; i < parsed_.count; ++i) {
    AddrRange& range = parsed_.ranges[i];
    if (before[i].size_bytes == 0) continue;
    // A mapping that mprotect() has cut in pieces; else one more of the same file.
    const uint64_t offset = range.start - start + file_offset;
    const bool goes_on = range.start == before[i].start + before[i].size_bytes &&
                         offset == parsed_.filters[i].offset + before[i].size_bytes;
    range =
        goes_on ? AddrRange{before[i].start, before[i].size_bytes + range.size_bytes} : before[i];
  }
}

void AddressFilters::end_mappings(void (*changed)(const AddressRange&, void*), void* closure) {
  if (!active()) return;
  const TracedRanges& old = ranges_[current_ & 1];
  TracedRanges& fresh = ranges_[(current_ + 1) & 1];
  bool any = false;
  for (uint32_t i = 0; i < parsed_.count; ++i) {
    const AddrRange& range = parsed_.ranges[i];
    fresh.ranges_[i] = {range.start, range.start + range.size_bytes};
    any |= fresh.ranges_[i].start != old.ranges_[i].start ||
           fresh.ranges_[i].end != old.ranges_[i].end;
  }
  if (!any) return;
  __atomic_store_n(&current_, current_ + 1, __ATOMIC_RELEASE);
  for (uint32_t i = 0; i < parsed_.count && changed != nullptr; ++i) {
    const AddressRange& from = old.ranges_[i];
    const AddressRange& to = fresh.ranges_[i];
    if (from.start == to.start && from.end == to.end) continue;
    if (from.start != from.end) changed(from, closure);
    if (to.start != to.end) changed(to, closure);
  }
}

}  // namespace auxtrail::unit
