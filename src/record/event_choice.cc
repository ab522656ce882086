#include "record/event_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <optional>

#include "channel/layout.h"
#include "record/event_modifiers.h"
#include "record/event_rate.h"
#include "record/event_text.h"
#include "record/intel_pt_terms.h"
#include "record/sampler_event.h"
#include "record/size_text.h"

namespace auxtrail::record {
namespace {

// Empty if windows can serve this choice.
std::string why_not_window(const EventChoice& choice) {
  if (choice.mode == TraceMode::kFull) return "full trace needs all branches";
  if (choice.mode == TraceMode::kSnapshot) return "snapshots need the branches before them";
  if (!choice.leader.filters.empty()) return "filters say where the trace begins and ends";
  if (choice.samplers.size() > 1) return "they follow the overflows of one event";
  for (const Sampler& sampler : choice.samplers) {
    if (sampler.in_kernel) {
      return fmt::format("{} happens inside the kernel, and what matters is before it",
                         sampler.name);
    }
    if ((sampler.attr.sample_type & PERF_SAMPLE_READ) != 0) return "they do not read values (:S)";
  }
  return "";
}

constexpr std::string_view kAuxPmu = "intel_pt";

tl::unexpected<Error> bad(std::string where, std::string why, std::string fix) {
  return fail({"choose the events", std::move(where), std::move(why), std::move(fix)});
}

bool unit_can_count(const perf_event_attr& attr) {
  return attr.type == PERF_TYPE_HARDWARE && (attr.config == PERF_COUNT_HW_INSTRUCTIONS ||
                                             attr.config == PERF_COUNT_HW_BRANCH_INSTRUCTIONS);
}

class Chooser {
 public:
  Chooser(const RecordOptions& options, const MachineFacts& machine)
      : options_(options), machine_(machine) {}

  Result<EventChoice> choose() {
    AUXTRAIL_TRY(read_events());
    AUXTRAIL_TRY(choose_mode());
    AUXTRAIL_TRY(set_leader());
    AUXTRAIL_TRY(set_aux_samples());
    AUXTRAIL_TRY(set_rates());
    AUXTRAIL_TRY(take_filters());
    AUXTRAIL_TRY(choose_unit());
    AUXTRAIL_TRY(size_aux_area());
    AUXTRAIL_TRY(set_counters());
    return std::move(choice_);
  }

 private:
  // An event that is no AUX event, with what only matters while choosing.
  struct Member {
    SamplerEvent event;
    Sampler sampler;
    size_t group;
    std::string text;
  };

  [[nodiscard]] std::string where() const { return fmt::format("-e {}", options_.event); }
  [[nodiscard]] bool leader_named() const { return leader_text_.has_value(); }

  Status read_events() {
    const bool nothing_asked = options_.event.empty();
    if (nothing_asked && options_.snapshot) return {};
    AUXTRAIL_ASSIGN(groups_, read_event_text(nothing_asked ? kDefaultEvent : options_.event));
    for (size_t group = 0; group < groups_.size(); ++group) {
      for (const EventText& event : groups_[group].events) {
        AUXTRAIL_TRY(event.name == kAuxPmu ? take_leader(event, group) : take_member(event, group));
      }
    }
    return {};
  }

  Status take_leader(const EventText& event, size_t group) {
    if (leader_named()) {
      return bad(where(), "there is one trace unit, and two AUX events", "name intel_pt// once");
    }
    if (&event != &groups_[group].events.front()) {
      return bad(where(), "an AUX event leads its group", "name intel_pt// first in the braces");
    }
    AUXTRAIL_ASSIGN(const Modifiers modifiers,
                    read_modifiers(event.modifiers, groups_[group].modifiers, event.text));
    if (modifiers.restricted() && !modifiers.user) {
      return bad(where(), "the software trace unit traces user space only", "use intel_pt//u");
    }
    leader_text_ = event;
    leader_group_ = group;
    return {};
  }

  Status take_member(const EventText& event, size_t group) {
    AUXTRAIL_ASSIGN(SamplerEvent read,
                    read_sampler_event(event, groups_[group].modifiers, machine_.tracefs));
    Sampler sampler;
    sampler.attr = read.attr;
    sampler.attr.size = sizeof(perf_event_attr);
    sampler.attr.inherit = options_.inherit ? 1 : 0;
    sampler.name = read.name;
    sampler.in_kernel = read.in_kernel;
    members_.push_back({std::move(read), std::move(sampler), group, event.text});
    return {};
  }

  Status choose_mode() {
    const bool by_term = std::any_of(members_.begin(), members_.end(), [](const Member& member) {
      return member.event.aux_sample_bytes.value_or(0) != 0;
    });
    const bool asked = by_term || options_.aux_sample_bytes;
    if (options_.snapshot) {
      if (asked)
        return bad("-S", "snapshots and AUX samples exclude each other", "give one of them");
      choice_.snapshot = *options_.snapshot;
      choice_.mode = TraceMode::kSnapshot;
    } else if (asked || !leader_named()) {
      choice_.mode = TraceMode::kSample;
    } else {
      choice_.mode = TraceMode::kFull;
    }
    return {};
  }

  Status set_leader() {
    EventText text;
    text.text = "intel_pt//u";
    if (leader_named()) text = *leader_text_;
    AUXTRAIL_ASSIGN(IntelPtTerms terms, read_intel_pt_terms(text, choice_.mode == TraceMode::kSample
                                                                      ? kSamplePsbPeriod
                                                                      : kTracePsbPeriod));
    perf_event_attr& attr = choice_.leader.attr;
    attr.size = sizeof(attr);
    attr.type = machine_.intel_pt.pmu_type;
    attr.config = terms.config;
    attr.exclude_kernel = 1;
    attr.exclude_hv = 1;
    choice_.leader.name = std::move(terms.name);
    choice_.leader.implied = !leader_named();
    return {};
  }

  // How many bytes of AUX data the samples of the event shall carry.
  [[nodiscard]] uint32_t wanted_aux_bytes(const Member& member) const {
    if (choice_.mode != TraceMode::kSample) return 0;
    if (member.event.aux_sample_bytes) return *member.event.aux_sample_bytes;
    if (options_.aux_sample_bytes) {
      return *options_.aux_sample_bytes != 0 ? *options_.aux_sample_bytes : kDefaultAuxSampleBytes;
    }
    return choice_.leader.implied ? kDefaultAuxSampleBytes : 0;
  }

  Status set_aux_samples() {
    bool any = false;
    for (Member& member : members_) {
      const uint32_t bytes = wanted_aux_bytes(member);
      // As perf does it: a term of its own brings an event into the AUX event's group.
      member.sampler.grouped = choice_.leader.implied || member.group == leader_group_ ||
                               (bytes != 0 && member.event.aux_sample_bytes);
      if (bytes == 0) continue;
      if (bytes < kMinAuxSampleBytes || bytes > kMaxAuxSampleBytes) {
        return fail({"size the AUX samples", fmt::format("{} of -e {}", bytes, member.text),
                     "out of range",
                     fmt::format("use {} to {} bytes", kMinAuxSampleBytes, kMaxAuxSampleBytes)});
      }
      if (!member.sampler.grouped) {
        return bad(where(), fmt::format("{} is outside the AUX event's group", member.text),
                   "write {intel_pt//u,...}, or give it an aux-sample-size= of its own");
      }
      member.sampler.attr.aux_sample_size = bytes;
      any = true;
    }
    if (choice_.mode == TraceMode::kSample && !any) {
      return bad(where(), "AUX samples need events besides the AUX event",
                 "write {intel_pt//u,page-faults:u}, or leave out --aux-sample for full trace");
    }
    return {};
  }

  Status set_rates() {
    for (size_t group = 0; group < groups_.size(); ++group) read_group(group);
    for (Member& member : members_) {
      if (!member.sampler.counts_only) {
        AUXTRAIL_TRY(set_rate(member.sampler.attr, member.event.rate, options_,
                              machine_.max_rate_hz, choice_.warnings));
      }
      choice_.samplers.push_back(std::move(member.sampler));
    }
    return {};
  }

  // ":S": the group's first event takes the samples (and any with a rate of its own), and they tell
  // what all have counted. The AUX event counts nothing and leads on.
  void read_group(size_t group) {
    const auto in_group = [group](const Member& member) { return member.group == group; };
    if (std::none_of(members_.begin(), members_.end(), [&](const Member& member) {
          return in_group(member) && member.event.read_group;
        })) {
      return;
    }
    const auto reader = std::find_if(members_.begin(), members_.end(), in_group);
    const auto size = std::count_if(members_.begin(), members_.end(), in_group);
    for (Member& member : members_) {
      if (!in_group(member)) continue;
      perf_event_attr& attr = member.sampler.attr;
      attr.sample_type |= PERF_SAMPLE_READ;
      attr.read_format = PERF_FORMAT_ID;
      if (size == 1) continue;
      attr.read_format |= PERF_FORMAT_GROUP;
      attr.inherit = 0;  // the kernel refuses both together
      member.sampler.read_group = static_cast<uint32_t>(group) + 1;
      if (&member == &*reader || member.event.rate) continue;
      member.sampler.counts_only = true;
      attr.aux_sample_size = 0;
    }
    if (options_.inherit && size > 1) {
      choice_.warnings.push_back(
          fmt::format("{}: values are read for the command's first thread only", reader->text));
    }
  }

  Status take_filters() {
    for (const FilterOption& filter : options_.filters) AUXTRAIL_TRY(take_filter(filter));
    return {};
  }

  // A filter belongs to the event before it: a tracepoint, or else the AUX event.
  Status take_filter(const FilterOption& filter) {
    size_t members_before = 0;
    bool aux_event_last = true;
    if (filter.event_bytes != 0) {
      AUXTRAIL_ASSIGN(const auto groups,
                      read_event_text(options_.event.substr(0, filter.event_bytes)));
      for (const EventGroup& group : groups) {
        for (const EventText& event : group.events) {
          aux_event_last = event.name == kAuxPmu;
          members_before += aux_event_last ? 0 : 1;
        }
      }
    }
    if (!aux_event_last) {
      Sampler& last = choice_.samplers[members_before - 1];
      if (last.attr.type == PERF_TYPE_TRACEPOINT) {
        last.filter = last.filter.empty() ? filter.text
                                          : fmt::format("({}) && ({})", last.filter, filter.text);
        return {};
      }
    }
    AUXTRAIL_ASSIGN(const auto texts, read_address_filters(filter.text));
    const FindSymbol find_symbol = options_.find_symbol ? options_.find_symbol : &no_symbols;
    for (const FilterText& text : texts) {
      AUXTRAIL_ASSIGN(AddressFilter address_filter, resolve_filter(text, find_symbol));
      // As /proc/PID/maps will name it.
      std::error_code ignored;
      const auto path = std::filesystem::weakly_canonical(address_filter.file, ignored);
      if (!ignored) address_filter.file = path;
      choice_.leader.filters.push_back(std::move(address_filter));
    }
    return {};
  }

  static Result<FileRange> no_symbols(const std::string& file, const FilterPlace& place) {
    return bad("--filter", fmt::format("no symbols of {} to find {} in", file, place.symbol),
               "give offsets in the file");
  }

  Status choose_unit() {
    const std::string reason = why_not_window(choice_);
    const bool count_in_unit =
        !machine_.hardware_counters &&
        std::any_of(choice_.samplers.begin(), choice_.samplers.end(),
                    [](const Sampler& sampler) { return unit_can_count(sampler.attr); });
    if (options_.unit == UnitChoice::kWindow && !reason.empty()) {
      return bad("--unit=window", "windows can't do it: " + reason, "use --unit=continuous");
    }
    const bool continuous = options_.unit == UnitChoice::kContinuous ||
                            (options_.unit == UnitChoice::kAuto &&
                             (!reason.empty() || count_in_unit || has_exact_event()));
    choice_.unit = continuous ? UnitKind::kContinuous : UnitKind::kWindow;
    return {};
  }

  // What led up to it is what matters of an event that is no clock and no counter of work done.
  [[nodiscard]] bool has_exact_event() const {
    return std::any_of(choice_.samplers.begin(), choice_.samplers.end(),
                       [](const Sampler& sampler) {
                         const uint32_t type = sampler.attr.type;
                         return !channel::is_clock(sampler.attr) && type != PERF_TYPE_HARDWARE &&
                                type != PERF_TYPE_HW_CACHE && type != PERF_TYPE_RAW;
                       });
  }

  Status size_aux_area() {
    choice_.aux_pages = options_.aux_pages.value_or(
        choice_.mode == TraceMode::kSample ? kDefaultAuxPages : kDefaultTraceAuxPages);
    if (choice_.snapshot.bytes != 0) AUXTRAIL_TRY(size_for_snapshots());
    if (choice_.unit == UnitKind::kContinuous) {
      raise_aux_pages(channel::kMinContinuousAuxPages, "the least for continuous trace");
    }
    return {};
  }

  // The area holds a snapshot and what its thread may be writing over while it is copied.
  Status size_for_snapshots() {
    const uint64_t bytes = choice_.snapshot.bytes;
    const std::string where = fmt::format("-S{}", bytes);
    if (bytes < kMinAuxSampleBytes) {
      return bad(where, "a snapshot is too small to be decoded",
                 fmt::format("use at least {} bytes", kMinAuxSampleBytes));
    }
    constexpr uint64_t kAheadPages = channel::kAuxAheadBytes / channel::kPageBytes;
    const uint64_t pages = bytes / channel::kPageBytes + (bytes % channel::kPageBytes != 0 ? 1 : 0);
    const uint64_t most = options_.aux_pages.value_or(kMaxPages);
    if (pages > most || pages + kAheadPages > kMaxPages) {
      return bad(where, fmt::format("a snapshot does not fit an AUX area of {} pages", most),
                 "give more AUX pages with -m DATA,AUX, or a smaller snapshot");
    }
    const auto needed = static_cast<uint32_t>(std::bit_ceil(pages + kAheadPages));
    if (!options_.aux_pages) choice_.aux_pages = needed;
    raise_aux_pages(needed, "so that a thread does not write over its snapshot");
    return {};
  }

  void raise_aux_pages(uint32_t needed, std::string_view why) {
    if (choice_.aux_pages >= needed) return;
    choice_.warnings.push_back(
        fmt::format("the AUX area has {} pages instead of {}, {}", needed, choice_.aux_pages, why));
    choice_.aux_pages = needed;
  }

  // The continuous unit counts itself: a hardware counter would count the unit's own instructions.
  // What it counts it samples in the middle of a superblock, wherever that is.
  Status set_counters() {
    if (choice_.unit != UnitKind::kContinuous) return {};
    for (Sampler& sampler : choice_.samplers) {
      if (!unit_can_count(sampler.attr)) continue;
      if (!choice_.leader.filters.empty()) {
        return bad(
            "--filter",
            fmt::format("the trace unit counts {} itself, and can't do that where it filters",
                        sampler.name),
            "leave --filter or that event out, or sample another one, as -e task-clock:u");
      }
      sampler.counter = sampler.attr.config == PERF_COUNT_HW_INSTRUCTIONS ? Counter::kInstructions
                                                                          : Counter::kBranches;
    }
    return {};
  }

  const RecordOptions& options_;
  const MachineFacts& machine_;
  EventChoice choice_;
  std::vector<EventGroup> groups_;
  std::vector<Member> members_;
  std::optional<EventText> leader_text_;
  std::optional<size_t> leader_group_;
};

}  // namespace

Result<EventChoice> choose_events(const RecordOptions& options, const MachineFacts& machine) {
  return Chooser(options, machine).choose();
}

}  // namespace auxtrail::record
