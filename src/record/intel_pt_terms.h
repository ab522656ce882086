// The AUX leader's configuration: "intel_pt/TERM,.../" in perf's words, as far as the software
// trace unit can do what they ask.
//
// The terms are the fields of the Intel PT PMU (its "format" folder in sysfs; SDM vol. 3,
// IA32_RTIT_CTL). perf turns on pt, tsc and branch by default; the software unit
// writes none of the packets that only hardware can know (MTC, CYC, power, PTWRITE).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "abi/intel_pt.h"
#include "base/result.h"
#include "record/event_text.h"

namespace auxtrail::record {

// What is always on.
inline constexpr uint64_t kIntelPtConfig =
    abi::pt_config::kPt | abi::pt_config::kTsc | abi::pt_config::kBranch;
// perf's psb_period where nobody gives one: for AUX samples the shortest, so that even a small one
// holds a PSB; else one each 16 KiB.
inline constexpr uint64_t kSamplePsbPeriod = 0;
inline constexpr uint64_t kTracePsbPeriod = 3;

struct IntelPtTerms {
  uint64_t config = 0;
  std::string name;  // of a term name=, else as written
};

// Errors: an unknown term or value, and what the software trace unit can't do, with the reason.
Result<IntelPtTerms> read_intel_pt_terms(const EventText& event, uint64_t default_psb_period);

// Bytes of trace between two PSB packets, as the config asks.
constexpr uint64_t psb_period_bytes(uint64_t config) {
  return uint64_t{2048} << ((config >> abi::pt_config::kPsbPeriodShift) & 0xf);
}

}  // namespace auxtrail::record
