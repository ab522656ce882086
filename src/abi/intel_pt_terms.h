// The config terms of the PMU intel_pt, "tsc,mtc,mtc_period=3,noretcomp": names to bits and back,
// and perf's defaults.
//
// As in perf's event "intel_pt/cyc,psb_period=5/u": the terms change the default config; a term
// alone sets its bit, NAME=VALUE its field (a number as strtoull(3) takes it with base 0). Which
// bits the caller named is kept, for perf changes defaults later but never what its user wrote.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "abi/intel_pt.h"
#include "base/result.h"

namespace auxtrail::abi {

struct PtTerm {
  std::string_view name;
  uint64_t bits;  // of attr.config, adjacent

  [[nodiscard]] constexpr uint32_t shift() const {
    return static_cast<uint32_t>(std::countr_zero(bits));
  }
  [[nodiscard]] constexpr uint64_t largest() const { return bits >> shift(); }
};

// All terms, in the order of their bits; those of one bit first.
[[nodiscard]] std::span<const PtTerm> pt_terms();
// Null for no such term.
[[nodiscard]] const PtTerm* find_pt_term(std::string_view name);

struct PtTerms {
  uint64_t config = 0;
  uint64_t user_bits = 0;  // the bits of all terms that were named
};

// "config:9", "config:14-17": what the file format/NAME has in sysfs; empty for no such term.
[[nodiscard]] std::string pt_term_format(std::string_view name);

// The config that perf starts from: tsc, pt, branch, and, where the unit has them, mtc with period
// 3 (or the nearest below, or the first above) and psb_period 3 likewise.
[[nodiscard]] uint64_t pt_default_config(const PtCaps& caps);

// Applies `terms` (may be empty) to `base`. Unknown names and values that do not fit are errors.
[[nodiscard]] Result<PtTerms> parse_pt_terms(std::string_view terms, uint64_t base);

// For snapshots and samples perf takes psb_period=0 (a PSB every 2 KiB), unless its user has set
// the period: a short piece of trace without a PSB is of no use.
[[nodiscard]] uint64_t pt_config_for_sampling(const PtTerms& terms);

// The terms that give `config`, in the order of their bits.
[[nodiscard]] std::string pt_terms_text(uint64_t config);

// An error that says which term the unit does not take, and which values it would.
[[nodiscard]] Status accept_pt_config(uint64_t config, const PtCaps& caps);

}  // namespace auxtrail::abi
