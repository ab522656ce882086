#include "pmu/pt_filters.h"

#include <cerrno>

namespace auxtrail::pmu {
namespace {

using event::AddrFilter;
using event::AddrFilterAction;
using event::AddrFilters;
using event::AddrRange;

constexpr uint64_t kCfgFilter = 1;
constexpr uint64_t kCfgStop = 2;

// 48 bits of address, the first and the last of the two halves.
constexpr uint64_t kLastUser = (uint64_t{1} << 47) - 1;
constexpr uint64_t kFirstKernel = ~kLastUser;

bool is_canonical(uint64_t address) { return address <= kLastUser || address >= kFirstKernel; }
bool is_kernel(uint64_t address) { return address >= kFirstKernel; }

PtRegister address_register(uint32_t range, uint32_t end) {
  return static_cast<PtRegister>(static_cast<uint32_t>(PtRegister::kAddr0A) + 2 * range + end);
}

bool fits_first_and_last(const AddrRange& range, uint64_t& a, uint64_t& b) {
  if (range.start == 0 || range.size_bytes == 0) return false;
  if (__builtin_add_overflow(range.start, range.size_bytes - 1, &b)) b = ~uint64_t{0};
  a = is_canonical(range.start) ? range.start : kFirstKernel;
  if (!is_canonical(b)) b = kLastUser;
  return a <= b;
}

}  // namespace

int check_pt_filters(const AddrFilters& filters, const abi::PtCaps& caps) {
  const uint32_t have =
      caps.num_address_ranges < kAddrRegisterPairs ? caps.num_address_ranges : kAddrRegisterPairs;
  for (uint32_t i = 0; i < filters.count; ++i) {
    const AddrFilter& filter = filters.filters[i];
    if (filter.size_bytes == 0 || filter.action == AddrFilterAction::kStart) return EOPNOTSUPP;
    if (filter.path == nullptr &&
        !(is_kernel(filter.offset) && is_kernel(filter.offset + filter.size_bytes))) {
      return EINVAL;
    }
    if (i >= have) return EOPNOTSUPP;
  }
  return 0;
}

void PtFilters::set(const AddrFilters& filters) {
  count_ = filters.count < kAddrRegisterPairs ? filters.count : kAddrRegisterPairs;
  for (uint32_t i = 0; i < count_; ++i) {
    Range& range = ranges_[i];
    if (!fits_first_and_last(filters.ranges[i], range.a, range.b)) range.a = range.b = 0;
    range.config = filters.filters[i].action == AddrFilterAction::kFilter ? kCfgFilter : kCfgStop;
  }
}

uint64_t PtFilters::write(const TraceUnit& unit) {
  uint64_t ctl = 0;
  for (uint32_t i = 0; i < count_; ++i) {
    const Range& range = ranges_[i];
    if (i >= known_ || registers_[i].a != range.a) {
      unit.write(unit.self, address_register(i, 0), range.a);
    }
    if (i >= known_ || registers_[i].b != range.b) {
      unit.write(unit.self, address_register(i, 1), range.b);
    }
    registers_[i] = range;
    ctl |= range.config << (rtit_ctl::kAddr0CfgShift + 4 * i);
  }
  if (count_ > known_) known_ = count_;
  return ctl;
}

}  // namespace auxtrail::pmu
