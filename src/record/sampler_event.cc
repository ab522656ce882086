#include "record/sampler_event.h"

#include <fmt/format.h>

#include <algorithm>

#include "abi/attr.h"
#include "record/breakpoint_text.h"
#include "record/event_modifiers.h"
#include "record/event_number.h"
#include "record/tracepoint.h"

namespace auxtrail::record {
namespace {

constexpr std::string_view kBreakpointPrefix = "mem:";

tl::unexpected<Error> bad(const EventText& event, std::string why, std::string fix) {
  return fail(
      {"choose the event", fmt::format("-e {}", event.text), std::move(why), std::move(fix)});
}

// Software events whose place is always inside the kernel: restricted to user space, they never
// overflow.
bool happens_in_kernel_only(const perf_event_attr& attr) {
  if (attr.type == PERF_TYPE_TRACEPOINT) return true;
  return attr.type == PERF_TYPE_SOFTWARE && (attr.config == PERF_COUNT_SW_CONTEXT_SWITCHES ||
                                             attr.config == PERF_COUNT_SW_CPU_MIGRATIONS ||
                                             attr.config == PERF_COUNT_SW_CGROUP_SWITCHES);
}

// Software events that count nothing by themselves.
bool never_overflows(const perf_event_attr& attr) {
  return attr.type == PERF_TYPE_SOFTWARE &&
         (attr.config == PERF_COUNT_SW_DUMMY || attr.config == PERF_COUNT_SW_BPF_OUTPUT);
}

std::string known_names() {
  std::string text;
  for (const std::string_view name : abi::generic_event_names()) {
    const auto attr = abi::find_event(name);
    if (attr && never_overflows(*attr)) continue;
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

struct Base {
  perf_event_attr attr{};
  std::string modifiers;  // those inside a breakpoint's text
};

Result<Base> find_base(const EventText& event, const std::string& tracefs) {
  if (event.name.substr(0, kBreakpointPrefix.size()) == kBreakpointPrefix) {
    AUXTRAIL_ASSIGN(BreakpointText breakpoint, read_breakpoint(event.name));
    return Base{breakpoint.attr, std::move(breakpoint.modifiers)};
  }
  if (event.name.find(':') != std::string::npos) {
    AUXTRAIL_ASSIGN(const perf_event_attr attr, find_tracepoint(event.name, tracefs));
    return Base{attr, {}};
  }
  const auto found = abi::find_event(event.name);
  if (found) return Base{*found, {}};
  if (event.slashes) {
    return bad(event, fmt::format("events of the PMU \"{}\" can't be recorded", event.name),
               "use a raw event rNNN; the trace unit's PMU is intel_pt");
  }
  return bad(event, "unknown event",
             "choose one of: " + known_names() +
                 "; or a raw event rNNN, a breakpoint mem:ADDRESS[/LENGTH][:rwx], a tracepoint "
                 "SUBSYSTEM:NAME, or the trace unit itself, intel_pt//u");
}

Status restrict_to_user(const EventText& event, const Modifiers& modifiers, SamplerEvent& result) {
  perf_event_attr& attr = result.attr;
  if (never_overflows(attr)) {
    return bad(event, "it never happens by itself",
               "use a clock, a fault or a hardware counter event");
  }
  result.in_kernel = happens_in_kernel_only(attr);
  if (result.in_kernel) {
    if (!modifiers.user || modifiers.kernel) return {};
    return bad(event, "it happens inside the kernel, and :u leaves that out", "leave out :u");
  }
  if (modifiers.restricted() && !modifiers.user) {
    return bad(event, "it leaves user space out, and the trace unit traces user space only",
               "use the modifier :u");
  }
  attr.exclude_kernel = 1;
  attr.exclude_hv = 1;
  return {};
}

// A name that perf's own parser takes.
bool is_name(std::string_view text) {
  const auto is_letter = [](char letter) {
    return letter == '_' || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
  };
  return is_letter(text.front()) && std::all_of(text.begin(), text.end(), [&](char letter) {
           return is_letter(letter) || (letter >= '0' && letter <= '9') || letter == '.' ||
                  letter == '-';
         });
}

Status take_term(const EventText& event, const EventTerm& term, SamplerEvent& result) {
  if (term.name == "name" && term.value) {
    if (!is_name(*term.value)) {
      return bad(event, fmt::format("\"{}\" is no name", *term.value), "use letters and digits");
    }
    result.name = *term.value;
    return {};
  }
  const auto value = term.value ? event_number(*term.value) : uint64_t{1};
  if (term.name == "period" || term.name == "freq") {
    if (!value) return bad(event, fmt::format("{}={} is no number", term.name, *term.value), "");
    result.rate = RateTerm{term.name == "freq", *value};
    return {};
  }
  if (term.name == "aux-sample-size") {
    if (!value || *value > UINT32_MAX) {
      return bad(event, fmt::format("{}={} is no size", term.name, *term.value), "");
    }
    result.aux_sample_bytes = static_cast<uint32_t>(*value);
    return {};
  }
  return bad(event, fmt::format("the term \"{}\" is unknown or has no meaning here", term.name),
             "the terms are period, freq, aux-sample-size and name");
}

}  // namespace

Result<SamplerEvent> read_sampler_event(const EventText& event, std::string_view group_modifiers,
                                        const std::string& tracefs) {
  AUXTRAIL_ASSIGN(const Base base, find_base(event, tracefs));
  const bool tracepoint = base.attr.type == PERF_TYPE_TRACEPOINT;
  AUXTRAIL_ASSIGN(const Modifiers modifiers,
                  read_modifiers(event.modifiers + base.modifiers, group_modifiers, event.text));
  SamplerEvent result;
  result.attr = base.attr;
  result.attr.precise_ip = modifiers.precise & 3U;
  result.attr.exclude_idle = modifiers.exclude_idle ? 1 : 0;
  result.read_group = modifiers.read_group;
  AUXTRAIL_TRY(restrict_to_user(event, modifiers, result));
  result.name = tracepoint ? event.name : abi::event_name(result.attr);
  for (const EventTerm& term : event.terms) AUXTRAIL_TRY(take_term(event, term, result));
  return result;
}

}  // namespace auxtrail::record
