#include "record/intel_pt_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "record/event_number.h"

namespace auxtrail::record {
namespace {

enum class Rule : uint8_t {
  kAlways,  // the software trace unit can't leave it out
  kNever,   // the software trace unit can't do it
  kFree,
};

// One field of attr.config.
struct Field {
  std::string_view name;
  unsigned shift;
  unsigned bits;
  Rule rule;
  const char* why;
};

constexpr Field kFields[] = {
    {"pt", 0, 1, Rule::kAlways, "there is no other trace"},
    {"cyc", 1, 1, Rule::kNever, "it has no cycle counter: no CYC packets"},
    {"pwr_evt", 4, 1, Rule::kNever, "it sees no power events"},
    {"fup_on_ptw", 5, 1, Rule::kNever, "it does not trace PTWRITE"},
    {"mtc", 9, 1, Rule::kNever, "it writes TSC packets, and no MTC packets between them"},
    {"tsc", 10, 1, Rule::kAlways, "it always writes TSC packets"},
    {"noretcomp", 11, 1, Rule::kFree, ""},
    {"ptw", 12, 1, Rule::kNever, "it does not trace PTWRITE"},
    {"branch", 13, 1, Rule::kAlways, "branches are what it traces"},
    {"mtc_period", 14, 4, Rule::kNever, "it writes no MTC packets"},
    {"cyc_thresh", 19, 4, Rule::kNever, "it writes no CYC packets"},
    {"psb_period", kIntelPtPsbPeriodShift, 4, Rule::kFree, ""},
    {"event", 31, 1, Rule::kNever, "it does not trace events"},
    {"notnt", 55, 1, Rule::kNever, "conditional branches are always traced"},
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

std::string field_names() {
  std::string names;
  for (const Field& field : kFields) names += fmt::format("{}, ", field.name);
  return names + "config, name";
}

uint64_t mask(const Field& field) { return ((uint64_t{1} << field.bits) - 1) << field.shift; }

Status check(const EventText& event, uint64_t config) {
  uint64_t known = 0;
  for (const Field& field : kFields) {
    known |= mask(field);
    const bool on = (config & mask(field)) != 0;
    if ((field.rule == Rule::kAlways && !on) || (field.rule == Rule::kNever && on)) {
      return bad(event,
                 fmt::format("the software trace unit can't do {}{}: {}", field.name,
                             on ? "" : "=0", field.why),
                 fmt::format("leave {} out", field.name));
    }
  }
  if ((config & ~known) == 0) return {};
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
  const auto* field = std::find_if(std::begin(kFields), std::end(kFields),
                                   [&](const Field& known) { return known.name == term.name; });
  if (field == std::end(kFields)) {
    return bad(event, fmt::format("no term \"{}\"", term.name), "the terms are " + field_names());
  }
  if (*value >= uint64_t{1} << field->bits) {
    return bad(
        event,
        fmt::format("{}={} is too big: at most {}", term.name, *value, (1U << field->bits) - 1),
        "");
  }
  config = (config & ~mask(*field)) | *value << field->shift;
  return {};
}

}  // namespace

Result<IntelPtTerms> read_intel_pt_terms(const EventText& event, uint64_t default_psb_period) {
  IntelPtTerms result{kIntelPtConfig | default_psb_period << kIntelPtPsbPeriodShift, event.text};
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
