// TraceUnit: the registers of an Intel PT trace unit, the seam between software and hardware.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// The PT PMU drives a unit through rdmsr and wrmsr alone and cannot tell whether silicon or a
// test's script answers. Memory is named to the unit by its address: where a unit needs other
// addresses (physical ones), its read and write translate. A unit without registers (both null) is
// one that appends to the AUX area by itself, with AuxArea::write() or claim(): the software unit.
// Reference: SDM volume 3, "Intel Processor Trace", section on its model-specific registers.
#pragma once

#include <cstdint>

#include "abi/intel_pt.h"

namespace auxtrail::pmu {

enum class PtRegister : uint32_t {  // IA32_RTIT_*, by MSR number
  kOutputBase = 0x560,
  kOutputMaskPtrs = 0x561,
  kCtl = 0x570,
  kStatus = 0x571,
  kCr3Match = 0x572,
  kAddr0A = 0x580,  // then ADDR0_B, ADDR1_A ... ADDR3_B
};
inline constexpr uint32_t kAddrRegisterPairs = 4;

namespace rtit_ctl {
inline constexpr uint64_t kTraceEn = 1u << 0;
inline constexpr uint64_t kOs = 1u << 2;
inline constexpr uint64_t kUser = 1u << 3;
inline constexpr uint64_t kCr3Filter = 1u << 7;
inline constexpr uint64_t kToPA = 1u << 8;
inline constexpr uint64_t kBranchEn = 1u << 13;
inline constexpr uint32_t kAddr0CfgShift = 32;  // four bits each: 1 filter, 2 stop
}  // namespace rtit_ctl

namespace rtit_status {
inline constexpr uint64_t kTriggerEn = 1u << 2;  // tracing is on
inline constexpr uint64_t kError = 1u << 4;      // the output tables make no sense
inline constexpr uint64_t kStopped = 1u << 5;    // a region with STOP is full
inline constexpr uint64_t kPacketByteCnt = uint64_t{0x1ffff} << 32;  // since the last PSB
}  // namespace rtit_status

struct TraceUnit {
  void* self = nullptr;
  uint64_t (*read)(void* self, PtRegister which) = nullptr;
  // Configuration is written while TraceEn is 0 only. When the write that clears TraceEn returns,
  // all packets are in memory.
  void (*write)(void* self, PtRegister which, uint64_t value) = nullptr;
  abi::PtCaps caps;

  [[nodiscard]] bool has_registers() const { return write != nullptr; }
};

}  // namespace auxtrail::pmu
