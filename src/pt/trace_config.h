// The circumstances of a trace that its packets do not tell: which CPU wrote it, with which filters
// and which clocks. The defaults fit the software trace unit.
//
// Reference: Intel SDM vol. 3, "Intel Processor Trace"; the specification updates of the CPUs for
// the errata.
#pragma once

#include <array>
#include <cstdint>

namespace auxtrail::pt {

// What some CPUs do wrong. Each flag is one erratum that decoding works around.
struct Errata {
  bool bdm64 = false;   // a wrong branch target before a transaction's abort
  bool bdm70 = false;   // FUP and MODE.Exec in the PSB+ right before a TIP.PGE
  bool skd007 = false;  // a CYC packet that swallowed the first byte of an OVF
  bool skd010 = false;  // no FUP behind an OVF
  bool skd022 = false;  // a FUP too many before the TIP.PGD of VMLAUNCH and VMRESUME
  bool skl014 = false;  // TIP.PGD without IP on a direct branch out of the filter
  bool skl168 = false;  // CYC and MTC packets lost before a PSB
  bool skz84 = false;   // TMA packets of eight bytes that say nothing
  bool apl11 = false;   // a TIP.PGD right behind an OVF
  bool apl12 = false;   // a FUP behind an OVF although tracing is off
  bool operator==(const Errata&) const = default;
};

struct Cpu {
  bool intel = false;  // false: not an Intel CPU, or unknown, or the software trace unit
  uint16_t family = 0;
  uint8_t model = 0;
  uint8_t stepping = 0;
};

enum class CpuKnowledge : uint8_t {
  kNotIntel,  // nothing to work around
  kKnown,     // the errata are those of the table
  kUnknown,   // an Intel CPU that the table does not have: every workaround that harms no other CPU
};
// Fills `errata` for `cpu`; never fails.
CpuKnowledge errata_of(const Cpu& cpu, Errata& errata);

// One of IA32_RTIT_ADDRn_A/B and its four bits of IA32_RTIT_CTL.
struct AddressRange {
  enum class Kind : uint8_t { kNone, kFilter, kStop };
  Kind kind = Kind::kNone;
  uint64_t start = 0;
  uint64_t end = 0;  // inclusive
};

struct TraceConfig {
  Errata errata{};
  std::array<AddressRange, 4> ranges{};
  uint8_t mtc_freq = 0;  // as in IA32_RTIT_CTL: an MTC every 2^mtc_freq cycles of the crystal clock
  uint8_t nom_freq = 0;  // MSR_PLATFORM_INFO[15:8], the nominal (non-turbo) frequency ratio
  uint32_t cpuid_0x15_eax = 0;  // TSC ticks = crystal clock * ebx / eax
  uint32_t cpuid_0x15_ebx = 0;
  // False: the trace was made without return compression (IA32_RTIT_CTL.DisRETC). A TNT bit is
  // never a return's then, so a return that meets one is an error instead of a guess.
  bool return_compression = true;
  // 16, 32 or 64: what the code is where no MODE.Exec packet has told yet. 0: unknown, and such
  // code is an error.
  uint8_t assumed_mode_bits = 0;
  // Keep the calibration of CYC packets over an OVF.
  bool keep_calibration_on_overflow = false;
  // Report the interrupt flag's changes as events of their own (libipt: enable_iflags_events).
  bool interrupt_flag_events = false;
  // Report also what a PSB+ says about page tables, virtual machines and frequency. It changes
  // nothing of the flow.
  bool status_events = true;
  // Report an event at every packet that tells the time (libipt: enable_tick_events).
  bool tick_events = false;

  [[nodiscard]] bool has_filter() const {
    for (const AddressRange& range : ranges) {
      if (range.kind != AddressRange::Kind::kNone) return true;
    }
    return false;
  }
  // Whether tracing is on at `ip`: in a filter (or there is none), and in no stop range.
  [[nodiscard]] bool traces(uint64_t ip) const {
    bool has_filters = false;
    bool in_filter = false;
    for (const AddressRange& range : ranges) {
      const bool inside = range.start <= ip && ip <= range.end;
      if (range.kind == AddressRange::Kind::kStop && inside) return false;
      has_filters |= range.kind == AddressRange::Kind::kFilter;
      in_filter |= range.kind == AddressRange::Kind::kFilter && inside;
    }
    return !has_filters || in_filter;
  }
};

}  // namespace auxtrail::pt
