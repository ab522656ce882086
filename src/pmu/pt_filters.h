// Address filters in the registers ADDRn_A, ADDRn_B and the ADDRn_CFG fields of RTIT_CTL.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// A range without addresses (its object is not mapped yet) is programmed as 0..0, which traces
// nothing. Addresses that the CPU cannot have are brought to the nearest that it can.
// Reference: SDM volume 3, "Filtering by IP".
#pragma once

#include <cstdint>

#include "event/addr_filter.h"
#include "pmu/trace_unit.h"

namespace auxtrail::pmu {

// What a unit with `caps` can do of `filters`. 0 or
// EOPNOTSUPP  a single address; "start"; more ranges than the unit has
// EINVAL      addresses without an object that are not the kernel's
[[nodiscard]] int check_pt_filters(const event::AddrFilters& filters, const abi::PtCaps& caps);

class PtFilters {
 public:
  // Takes over the ranges; they reach the unit with the next write().
  void set(const event::AddrFilters& filters);
  // Writes the registers that differ from what is in them, while TraceEn is 0; returns the CFG
  // fields for RTIT_CTL.
  [[nodiscard]] uint64_t write(const TraceUnit& unit);

 private:
  struct Range {
    uint64_t a = 0;
    uint64_t b = 0;
    uint64_t config = 0;
  };
  Range ranges_[kAddrRegisterPairs];
  Range registers_[kAddrRegisterPairs];  // what is in them
  uint32_t count_ = 0;
  uint32_t known_ = 0;  // of how many pairs we know what is in them
};

}  // namespace auxtrail::pmu
