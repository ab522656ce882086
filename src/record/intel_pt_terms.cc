#include "record/intel_pt_terms.h"

#include <fmt/format.h>

#include <string_view>

#include "abi/intel_pt_terms.h"
#include "record/event_number.h"

namespace auxtrail::record {
namespace {

enum class Rule : uint8_t {
  kAlways,  // the software trace unit can't leave it out
  kNever,   // the software trace unit can't do it
  kFree,
};

// What the software trace unit says to one of the terms (abi/intel_pt_terms.h).
struct Answer {
  std::string_view term;
  Rule rule;
  const char* why;
};

constexpr Answer kAnswers[] = {
    {"pt", Rule::kAlways, "there is no other trace"},
    {"cyc", Rule::kNever, "it has no cycle counter: no CYC packets"},
    {"pwr_evt", Rule::kNever, "it sees no power events"},
    {"fup_on_ptw", Rule::kNever, "it does not trace PTWRITE"},
    {"mtc", Rule::kNever, "it writes TSC packets, and no MTC packets between them"},
    {"tsc", Rule::kAlways, "it always writes TSC packets"},
    {"noretcomp", Rule::kFree, ""},
    {"ptw", Rule::kNever, "it does not trace PTWRITE"},
    {"branch", Rule::kAlways, "branches are what it traces"},
    {"mtc_period", Rule::kNever, "it writes no MTC packets"},
    {"cyc_thresh", Rule::kNever, "it writes no CYC packets"},
    {"psb_period", Rule::kFree, ""},
    {"event", Rule::kNever, "it does not trace events"},
    {"notnt", Rule::kNever, "conditional branches are always traced"},
};

// Terms of perf that have no meaning for the AUX event of a recording of ours.
struct Refused {
  std::string_view name;
  const char* why;
  const char* fix;
};
constexpr Refused kRefused[] = {
    {"aux-sample-size", "AUX area samples can't be added to the AUX area event itself",
     "give it to an event of the group: {intel_pt//u,page-faults/aux-sample-size=4096/u}"},
    {"aux-output", "the AUX area event is its own output", "leave it out"},
    {"period", "the AUX area event takes no samples", "give it to an event of its group"},
    {"freq", "the AUX area event takes no samples", "give it to an event of its group"},
};

tl::unexpected<Error> bad(const EventText& event, std::string why, std::string fix) {
  return fail(
      {"set up the trace unit", fmt::format("-e {}", event.text), std::move(why), std::move(fix)});
}

std::string term_names() {
  std::string names;
  for (const abi::PtTerm& term : abi::pt_terms()) names += fmt::format("{}, ", term.name);
  return names + "config, name";
}

Status check(const EventText& event, uint64_t config) {
  for (const Answer& answer : kAnswers) {
    const bool on = (config & abi::find_pt_term(answer.term)->bits) != 0;
    if ((answer.rule == Rule::kAlways && !on) || (answer.rule == Rule::kNever && on)) {
      return bad(event,
                 fmt::format("the software trace unit can't do {}{}: {}", answer.term,
                             on ? "" : "=0", answer.why),
                 fmt::format("leave {} out", answer.term));
    }
  }
  if ((config & ~abi::pt_config::kAll) == 0) return {};
  return bad(event, fmt::format("config {:#x} has bits without a meaning", config),
             "use the terms' names");
}

Status apply(const EventText& event, const EventTerm& term, uint64_t& config) {
  const auto value = term.value ? event_number(*term.value) : uint64_t{1};
  if (!value) return bad(event, fmt::format("{}={} is no number", term.name, *term.value), "");
  if (term.name == "config") {
    config = *value;
    return {};
  }
  const abi::PtTerm* const known = abi::find_pt_term(term.name);
  if (known == nullptr) {
    return bad(event, fmt::format("no term \"{}\"", term.name), "the terms are " + term_names());
  }
  if (*value > known->largest()) {
    return bad(event,
               fmt::format("{}={} is too big: at most {}", term.name, *value, known->largest()),
               "");
  }
  config = (config & ~known->bits) | *value << known->shift();
  return {};
}

}  // namespace

Result<IntelPtTerms> read_intel_pt_terms(const EventText& event, uint64_t default_psb_period) {
  IntelPtTerms result{kIntelPtConfig | default_psb_period << abi::pt_config::kPsbPeriodShift,
                      event.text};
  for (const EventTerm& term : event.terms) {
    for (const Refused& refused : kRefused) {
      if (refused.name == term.name) return bad(event, refused.why, refused.fix);
    }
    if (term.name == "name" && term.value) {
      result.name = *term.value;
    } else {
      AUXTRAIL_TRY(apply(event, term, result.config));
    }
  }
  AUXTRAIL_TRY(check(event, result.config));
  return result;
}

}  // namespace auxtrail::record
