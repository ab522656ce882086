#include "abi/intel_pt_terms.h"

#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <cstdlib>

namespace auxtrail::abi {
namespace {

constexpr PtTerm kTerms[] = {
    {"pt", pt_config::kPt},
    {"cyc", pt_config::kCyc},
    {"pwr_evt", pt_config::kPwrEvt},
    {"fup_on_ptw", pt_config::kFupOnPtw},
    {"mtc", pt_config::kMtc},
    {"tsc", pt_config::kTsc},
    {"noretcomp", pt_config::kNoRetComp},
    {"ptw", pt_config::kPtw},
    {"branch", pt_config::kBranch},
    {"mtc_period", pt_config::kMtcPeriod},
    {"cyc_thresh", pt_config::kCycThresh},
    {"psb_period", pt_config::kPsbPeriod},
    {"event", pt_config::kEvent},
    {"notnt", pt_config::kNoTnt},
};

uint32_t lowest_bit(uint64_t bits) { return static_cast<uint32_t>(std::countr_zero(bits)); }

// The largest of the offered values up to `target`, or the first above it. `values` is not 0.
uint32_t pick_value(uint32_t values, uint32_t target) {
  const uint32_t up_to_target = values & ((2u << target) - 1);
  return up_to_target != 0 ? static_cast<uint32_t>(std::bit_width(up_to_target)) - 1
                           : lowest_bit(values);
}

Error bad_term(std::string_view term, std::string why, std::string fix = "") {
  return {"read Intel PT config term", std::string(term), std::move(why), std::move(fix), EINVAL};
}

Result<uint64_t> term_value(std::string_view text, std::string_view digits) {
  const std::string copy(digits);
  char* end = nullptr;
  errno = 0;
  const uint64_t value = std::strtoull(copy.c_str(), &end, 0);
  const bool number = !copy.empty() && copy[0] >= '0' && copy[0] <= '9' && *end == '\0';
  if (!number || errno != 0) return fail(bad_term(text, fmt::format("'{}' is no number", digits)));
  return value;
}

Status apply_term(std::string_view text, PtTerms& to) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const PtTerm* const term = find_pt_term(name);
  if (term == nullptr) {
    std::string names;
    for (const PtTerm& known : kTerms) names += fmt::format(" {}", known.name);
    return fail(bad_term(text, fmt::format("no term '{}'", name), "the terms are:" + names));
  }
  uint64_t value = 1;
  if (equals != std::string_view::npos) {
    AUXTRAIL_ASSIGN(value, term_value(text, text.substr(equals + 1)));
  }
  if (value > term->largest()) {
    return fail(
        bad_term(text, fmt::format("the largest value of {} is {}", name, term->largest())));
  }
  to.config = (to.config & ~term->bits) | (value << term->shift());
  to.user_bits |= term->bits;
  return {};
}

std::string values_text(uint32_t values) {
  if (values == 0) return "0 alone is possible";
  std::string text;
  for (uint32_t value = 0; value < 16; ++value) {
    if (((values >> value) & 1) != 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", value);
  }
  return "possible values: " + text;
}

Status refuse(std::string_view term, std::string_view why, std::string fix = "") {
  return fail({"configure Intel PT", std::string(term), std::string(why),
               fix.empty() ? fmt::format("leave {} away", term) : std::move(fix), EINVAL});
}

}  // namespace

std::span<const PtTerm> pt_terms() { return kTerms; }

const PtTerm* find_pt_term(std::string_view name) {
  for (const PtTerm& term : kTerms) {
    if (term.name == name) return &term;
  }
  return nullptr;
}

std::string pt_term_format(std::string_view name) {
  const PtTerm* const term = find_pt_term(name);
  if (term == nullptr) return {};
  const uint32_t first = term->shift();
  const auto last = static_cast<uint32_t>(std::bit_width(term->bits)) - 1;
  return first == last ? fmt::format("config:{}", first) : fmt::format("config:{}-{}", first, last);
}

uint64_t pt_default_config(const PtCaps& caps) {
  constexpr uint32_t kUsualPeriod = 3;
  uint64_t config = pt_config::kTsc | pt_config::kPt | pt_config::kBranch;
  if (!caps.mtc || caps.mtc_periods == 0) return config;
  config |= pt_config::kMtc | uint64_t{pick_value(caps.mtc_periods, kUsualPeriod)}
                                  << pt_config::kMtcPeriodShift;
  if (caps.psb_cyc && caps.psb_periods != 0) {
    config |= uint64_t{pick_value(caps.psb_periods, kUsualPeriod)} << pt_config::kPsbPeriodShift;
  }
  return config;
}

Result<PtTerms> parse_pt_terms(std::string_view terms, uint64_t base) {
  PtTerms result{base, 0};
  while (!terms.empty()) {
    const size_t comma = terms.find(',');
    AUXTRAIL_TRY(apply_term(terms.substr(0, comma), result));
    if (comma == std::string_view::npos) break;
    terms.remove_prefix(comma + 1);
    if (terms.empty()) return fail(bad_term("", "a comma, and no term after it"));
  }
  return result;
}

uint64_t pt_config_for_sampling(const PtTerms& terms) {
  const bool chosen = (terms.user_bits & pt_config::kPsbPeriod) != 0;
  return chosen ? terms.config : terms.config & ~pt_config::kPsbPeriod;
}

std::string pt_terms_text(uint64_t config) {
  std::string text;
  for (const PtTerm& term : kTerms) {
    const uint64_t value = (config & term.bits) >> term.shift();
    if (value == 0) continue;
    if (!text.empty()) text += ',';
    text += term.name;
    if (term.largest() > 1) text += fmt::format("={}", value);
  }
  return text;
}

Status accept_pt_config(uint64_t config, const PtCaps& caps) {
  switch (check_pt_config(config, caps)) {
    case PtConfigFault::kNone:
      return {};
    case PtConfigFault::kUnknownBits:
      return refuse("config", fmt::format("bits {:#x} mean nothing", config & ~pt_config::kAll),
                    "use the named terms");
    case PtConfigFault::kNoPsbCyc:
      return refuse("cyc, cyc_thresh, psb_period", "the unit has no cycle-accurate mode");
    case PtConfigFault::kNoSuchPsbPeriod:
      return refuse("psb_period", "the unit has no such period", values_text(caps.psb_periods));
    case PtConfigFault::kNoSuchCycThresh:
      return refuse("cyc_thresh", "the unit has no such threshold",
                    values_text(caps.cycle_thresholds));
    case PtConfigFault::kNoMtc:
      return refuse("mtc, mtc_period", "the unit has no MTC packets");
    case PtConfigFault::kNoSuchMtcPeriod:
      return refuse("mtc_period", "the unit has no such period", values_text(caps.mtc_periods));
    case PtConfigFault::kNoPowerEvents:
      return refuse("pwr_evt", "the unit does not trace power events");
    case PtConfigFault::kNoEventTrace:
      return refuse("event", "the unit has no event trace");
    case PtConfigFault::kNoTntDisable:
      return refuse("notnt", "the unit cannot leave TNT packets out");
    case PtConfigFault::kNoPtwrite:
      return refuse("ptw, fup_on_ptw", "the unit does not trace PTWRITE");
    case PtConfigFault::kFupWithoutPtw:
      return refuse("fup_on_ptw", "there is no PTW packet to follow", "add ptw");
    case PtConfigFault::kBranchNeeded:
      return refuse("pt", "this CPU traces branches always", "add branch");
    case PtConfigFault::kBranchWithoutPt:
      return refuse("branch", "without pt branches are traced anyway", "add pt");
  }
  return {};
}

}  // namespace auxtrail::abi
