// Signals as bits of the kernel's signal sets.
#pragma once

#include <cstdint>

namespace auxtrail::unit {

inline constexpr uint64_t kAllSignals = ~uint64_t{0};
constexpr uint64_t signal_bit(int signal) { return uint64_t{1} << (signal - 1); }

}  // namespace auxtrail::unit
