// BtsUnit: what of a CPU the BTS PMU uses: the debug store area and the bits of IA32_DEBUGCTL.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// The CPU writes a record of 24 bytes for each branch to *bts_index and moves the index on. With
// BTINT it interrupts when the index reaches the threshold, and writes no record beyond the
// absolute maximum; without, it begins again at the buffer's base there.
//
//   record:  u64 from | u64 to | u64 flags (bit 4: predicted)
//
// Reference: SDM volume 3, "Branch Trace Store (BTS)" and "BTS and DS Save Area".
#pragma once

#include <cstdint>

namespace auxtrail::pmu {

inline constexpr uint64_t kBtsRecordBytes = 24;

// The first four words of the DS area, which belong to BTS.
struct DebugStore {
  uint64_t bts_buffer_base = 0;
  uint64_t bts_index = 0;
  uint64_t bts_absolute_maximum = 0;
  uint64_t bts_interrupt_threshold = 0;
};

namespace debugctl {
inline constexpr uint64_t kTr = 1u << 6;           // send branch messages
inline constexpr uint64_t kBts = 1u << 7;          // and store them
inline constexpr uint64_t kBtint = 1u << 8;        // interrupt at the threshold
inline constexpr uint64_t kBtsOffOs = 1u << 9;     // no branches of the kernel
inline constexpr uint64_t kBtsOffUser = 1u << 10;  // none of user space
}  // namespace debugctl

struct BtsUnit {
  void* self = nullptr;
  DebugStore* ds = nullptr;
  // Sets the BTS bits of IA32_DEBUGCTL to these; 0 switches BTS off. When it returns all records
  // of before are in memory.
  void (*control)(void* self, uint64_t bits) = nullptr;
};

}  // namespace auxtrail::pmu
