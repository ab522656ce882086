// Intel PT as a PMU: what a trace unit can do, and which attr.config it accepts.
//
// PtCaps is what CPUID leaf 0x14 says (the kernel's sysfs folder intel_pt/caps/), the constants are
// the bits of attr.config (its folder format/), which are those of IA32_RTIT_CTL but for bit 0:
// TraceEn belongs to the driver, so in a config it means "branch is taken from this config" where
// older programs had branches always. check_pt_config() is the kernel's pt_event_valid().
//
// Header only and without any call, so that code inside the traced program may use it as well.
// Reference: SDM volume 3, chapter "Intel Processor Trace", CPUID leaf 0x14.
#pragma once

#include <cstdint>

namespace auxtrail::abi {

namespace pt_config {
inline constexpr uint64_t kPt = 1u << 0;
inline constexpr uint64_t kCyc = 1u << 1;
inline constexpr uint64_t kPwrEvt = 1u << 4;
inline constexpr uint64_t kFupOnPtw = 1u << 5;
inline constexpr uint64_t kMtc = 1u << 9;
inline constexpr uint64_t kTsc = 1u << 10;
inline constexpr uint64_t kNoRetComp = 1u << 11;
inline constexpr uint64_t kPtw = 1u << 12;
inline constexpr uint64_t kBranch = 1u << 13;
inline constexpr uint32_t kMtcPeriodShift = 14;
inline constexpr uint64_t kMtcPeriod = uint64_t{0xf} << kMtcPeriodShift;
inline constexpr uint32_t kCycThreshShift = 19;
inline constexpr uint64_t kCycThresh = uint64_t{0xf} << kCycThreshShift;
inline constexpr uint32_t kPsbPeriodShift = 24;
inline constexpr uint64_t kPsbPeriod = uint64_t{0xf} << kPsbPeriodShift;
inline constexpr uint64_t kEvent = uint64_t{1} << 31;
inline constexpr uint64_t kNoTnt = uint64_t{1} << 55;
inline constexpr uint64_t kAll = kPt | kCyc | kPwrEvt | kFupOnPtw | kMtc | kTsc | kNoRetComp |
                                 kPtw | kBranch | kMtcPeriod | kCycThresh | kPsbPeriod | kEvent |
                                 kNoTnt;
}  // namespace pt_config

struct CpuidRegs {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// The default is a unit that can only trace branches with TSC.
struct PtCaps {
  bool cr3_filtering = false;
  bool psb_cyc = false;  // CYC packets, and a PSB period that can be set
  bool ip_filtering = false;
  bool mtc = false;
  bool ptwrite = false;
  bool power_event_trace = false;
  bool event_trace = false;
  bool tnt_disable = false;
  bool topa_output = false;
  bool topa_multiple_entries = false;
  bool single_range_output = false;
  bool output_subsys = false;
  bool payloads_lip = false;
  uint8_t num_address_ranges = 0;
  uint16_t mtc_periods = 0;       // bit n: mtc_period=n is possible
  uint16_t cycle_thresholds = 0;  // bit n: cyc_thresh=n
  uint16_t psb_periods = 0;       // bit n: psb_period=n

  // Not in the leaf: IA32_VMX_MISC[14], and a CPU erratum (BDM106).
  bool vmx = false;               // traces on in VMX operation
  bool branch_always_on = false;  // BranchEn must be set
};

// What the software unit can do beyond that: as many address ranges as there are registers for.
inline constexpr PtCaps kSoftwareUnitCaps{.ip_filtering = true, .num_address_ranges = 4};

// From the two sub-leaves of CPUID leaf 0x14.
[[nodiscard]] constexpr PtCaps pt_caps_from_cpuid(const CpuidRegs& sub0, const CpuidRegs& sub1) {
  const auto bit = [](uint32_t value, uint32_t at) { return ((value >> at) & 1) != 0; };
  PtCaps caps;
  caps.cr3_filtering = bit(sub0.ebx, 0);
  caps.psb_cyc = bit(sub0.ebx, 1);
  caps.ip_filtering = bit(sub0.ebx, 2);
  caps.mtc = bit(sub0.ebx, 3);
  caps.ptwrite = bit(sub0.ebx, 4);
  caps.power_event_trace = bit(sub0.ebx, 5);
  caps.event_trace = bit(sub0.ebx, 7);
  caps.tnt_disable = bit(sub0.ebx, 8);
  caps.topa_output = bit(sub0.ecx, 0);
  caps.topa_multiple_entries = bit(sub0.ecx, 1);
  caps.single_range_output = bit(sub0.ecx, 2);
  caps.output_subsys = bit(sub0.ecx, 3);
  caps.payloads_lip = bit(sub0.ecx, 31);
  if (sub0.eax >= 1) {
    caps.num_address_ranges = static_cast<uint8_t>(sub1.eax & 7);
    caps.mtc_periods = static_cast<uint16_t>(sub1.eax >> 16);
    caps.cycle_thresholds = static_cast<uint16_t>(sub1.ebx & 0xffff);
    caps.psb_periods = static_cast<uint16_t>(sub1.ebx >> 16);
  }
  return caps;
}

// Why a unit does not accept a config; all of them are EINVAL to perf_event_open's caller.
enum class PtConfigFault : uint8_t {
  kNone,
  kUnknownBits,
  kNoPsbCyc,         // cyc, cyc_thresh or psb_period
  kNoSuchPsbPeriod,  // a period that the unit does not have
  kNoSuchCycThresh,  // a threshold that the unit does not have
  kNoMtc,            // mtc or mtc_period
  kNoSuchMtcPeriod,  // a period that the unit does not have
  kNoPowerEvents,    // pwr_evt
  kNoEventTrace,     // event
  kNoTntDisable,     // notnt
  kNoPtwrite,        // ptw or fup_on_ptw
  kFupWithoutPtw,    // fup_on_ptw makes sense with ptw only
  kBranchNeeded,     // pt without branch on a CPU that cannot be without
  kBranchWithoutPt,  // branch is not looked at without pt, so nobody may set it
};

[[nodiscard]] constexpr PtConfigFault check_pt_config(uint64_t config, const PtCaps& caps) {
  using namespace pt_config;
  using enum PtConfigFault;
  const auto offered = [](uint32_t values, uint64_t value) { return ((values >> value) & 1) != 0; };
  if ((config & ~kAll) != 0) return kUnknownBits;
  if ((config & (kCyc | kCycThresh | kPsbPeriod)) != 0) {
    if (!caps.psb_cyc) return kNoPsbCyc;
    const uint64_t psb_period = (config & kPsbPeriod) >> kPsbPeriodShift;
    if (psb_period != 0 && !offered(caps.psb_periods, psb_period)) return kNoSuchPsbPeriod;
    const uint64_t cyc_thresh = (config & kCycThresh) >> kCycThreshShift;
    if (cyc_thresh != 0 && !offered(caps.cycle_thresholds, cyc_thresh)) {
      return kNoSuchCycThresh;
    }
  }
  if ((config & (kMtc | kMtcPeriod)) != 0) {
    if (!caps.mtc || caps.mtc_periods == 0) return kNoMtc;
    if (!offered(caps.mtc_periods, (config & kMtcPeriod) >> kMtcPeriodShift)) {
      return kNoSuchMtcPeriod;
    }
  }
  if ((config & kPwrEvt) != 0 && !caps.power_event_trace) return kNoPowerEvents;
  if ((config & kEvent) != 0 && !caps.event_trace) return kNoEventTrace;
  if ((config & kNoTnt) != 0 && !caps.tnt_disable) return kNoTntDisable;
  if ((config & (kPtw | kFupOnPtw)) != 0) {
    if (!caps.ptwrite) return kNoPtwrite;
    if ((config & kPtw) == 0) return kFupWithoutPtw;
  }
  if ((config & kPt) != 0) {
    return caps.branch_always_on && (config & kBranch) == 0 ? kBranchNeeded : kNone;
  }
  return (config & kBranch) != 0 ? kBranchWithoutPt : kNone;
}

}  // namespace auxtrail::abi
