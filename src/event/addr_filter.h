// Address filters: trace in these ranges only, or stop tracing there. PERF_EVENT_IOC_SET_FILTER for
// PMUs that trace instructions.
//
// IN-PROCESS CODE: no allocation, no locks, no libc.
//
// A filter names a range of an object file or kernel addresses. Where an object lies is known only
// once it is mapped, so each filter has a range of addresses beside it, empty until then: a PMU
// programs the ranges when the event is started again after a change (sync_addr_filters).
//
//   "filter 0x1000/0x200@/usr/bin/true, stop 0x40/8@/usr/bin/true"     "filter
//   0xffffffff81000000/64"
//
// Reference: perf_event_open(2), PERF_EVENT_IOC_SET_FILTER; perf-record(1), --filter.
#pragma once

#include <cstddef>
#include <cstdint>

namespace auxtrail::event {

struct Event;

enum class AddrFilterAction : uint8_t { kStop = 0, kStart = 1, kFilter = 2 };  // the kernel's order

struct AddrFilter {
  AddrFilterAction action = AddrFilterAction::kFilter;
  uint64_t offset = 0;         // in the object's file, or an address where there is none
  uint64_t size_bytes = 0;     // 0: the single address
  const char* path = nullptr;  // the object's, inside the parsed string; null for addresses
  uint32_t path_bytes = 0;
};

struct AddrRange {  // of addresses; size 0: nothing is mapped there (yet)
  uint64_t start = 0;
  uint64_t size_bytes = 0;
};

// More than any unit has registers for: a list that does not fit here fits nowhere.
inline constexpr uint32_t kMaxAddrFilters = 8;

struct AddrFilters {
  AddrFilter filters[kMaxAddrFilters];
  AddrRange ranges[kMaxAddrFilters];
  uint32_t count = 0;
  uint64_t generation = 0;  // counts the changes
};

// What of an object is mapped where.
struct AddrMapping {
  const char* path = nullptr;
  uint32_t path_bytes = 0;
  uint64_t start = 0;
  uint64_t size_bytes = 0;
  uint64_t file_offset = 0;
};

// Reads a filter string into `filters` (which keeps pointing into it). 0 or
// EINVAL      not of the form above; a "filter" of no size; addresses with attr.exclude_kernel
// ERANGE      a number of more than 64 bits
// EOPNOTSUPP  an object, but the event belongs to no task; more filters than any unit has
[[nodiscard]] int parse_addr_filters(const char* text, size_t text_bytes, const Event& event,
                                     AddrFilters& filters);

// Replaces the filters of `event` by `filters`, which must outlive it, if its PMU can do them.
// 0, EINVAL (the PMU has no filters) or what Pmu::addr_filters_validate says. They act from the
// event's next start on.
[[nodiscard]] int set_addr_filters(Event& event, AddrFilters& filters);

// A mapping appeared: sets the ranges of the filters that name its object and a part of it.
// Returns how many ranges changed.
uint32_t map_addr_filters(AddrFilters& filters, const AddrMapping& mapping);

// For PMUs, before they start: has them take over the ranges if those changed since the last time.
void sync_addr_filters(Event& event);

}  // namespace auxtrail::event
