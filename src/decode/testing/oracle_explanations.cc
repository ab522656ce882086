#include "decode/testing/oracle_explanations.h"

#include <fmt/format.h>

#include <array>

namespace auxtrail::decode::testing {
namespace {

using flow::EventKind;
using Records = std::vector<BlockRecord>;

bool is_kind(const Records& records, size_t index, BlockRecordKind kind) {
  return index < records.size() && records[index].kind == kind;
}

bool is_event(const Records& records, size_t index, EventKind kind) {
  return is_kind(records, index, BlockRecordKind::kEvent) && records[index].event.kind == kind;
}

bool are_runs(const Place& at) {
  return is_kind(at.left, at.l, BlockRecordKind::kRun) &&
         is_kind(at.right, at.r, BlockRecordKind::kRun) &&
         at.left[at.l].first_ip == at.right[at.r].first_ip;
}

bool falls_out(const DifferentialCase&, const Place& at) {
  if (is_event(at.left, at.l, EventKind::kDisabled)) {
    return is_kind(at.right, at.r, BlockRecordKind::kRun) &&
           at.right[at.r].first_ip == at.left[at.l].event.ip;
  }
  return is_event(at.left, at.l + 1, EventKind::kDisabled) && are_runs(at) &&
         at.right[at.r].instructions > at.left[at.l].instructions;
}

bool stays_in_filter(const DifferentialCase& made, const Place& at) {
  return made.config.intel_cpu && made.config.filter_end != 0 &&
         is_event(at.left, at.l, EventKind::kDisabled) && at.left[at.l].event.ip_suppressed &&
         is_kind(at.right, at.r, BlockRecordKind::kRun);
}

bool is_longer_before(const Place& at, EventKind kind) {
  return is_event(at.left, at.l + 1, kind) && are_runs(at) &&
         at.right[at.r].instructions < at.left[at.l].instructions;
}

bool is_vmentry(const DifferentialCase& made, const Place& at) {
  return made.config.intel_cpu && is_longer_before(at, EventKind::kDisabled);
}

bool swallows_jump(const DifferentialCase&, const Place& at) {
  return is_longer_before(at, EventKind::kPtwrite) &&
         at.left[at.l].last_ip == at.left[at.l + 1].event.ip;
}

bool resumes(const DifferentialCase&, const Place& at) {
  return is_event(at.left, at.l, EventKind::kEnabled) &&
         is_event(at.right, at.r, EventKind::kEnabled) &&
         at.right[at.r].resumed != at.left[at.l].resumed &&
         at.left[at.l].event.ip == at.right[at.r].event.ip;
}

bool is_damaged(const DifferentialCase& made, const Place&) { return !made.is_genuine; }

// The mode that records before tell of.
flow::ExecMode mode_before(const Records& records, size_t index) {
  while (index-- > 0) {
    if (records[index].kind == BlockRecordKind::kRun) return records[index].mode;
    if (is_event(records, index, EventKind::kExecMode)) return records[index].event.mode;
  }
  return flow::ExecMode::kUnknown;
}

bool keeps_mode(const DifferentialCase& made, const Place& at) {
  return !made.is_genuine && are_runs(at) && at.left[at.l].mode != at.right[at.r].mode &&
         at.right[at.r].mode == mode_before(at.left, at.l);
}

// Whether `right` tells a few records more before the error that `left` tells at once.
bool meets_later(const Records& left, size_t l, const Records& right, size_t r) {
  constexpr size_t kMost = 6;
  if (!is_kind(left, l, BlockRecordKind::kError)) return false;
  for (size_t i = r + 1; i < right.size() && i < r + kMost; ++i) {
    if (right[i].kind == BlockRecordKind::kError) return right[i].error == left[l].error;
  }
  return false;
}

// libipt 2.0.5 follows the code up to where it wants the packet, or leaves out the last event.
bool is_cut_short(const DifferentialCase& made, const Place& at) {
  constexpr size_t kMost = 3;
  if (made.is_genuine || at.left.size() > at.l + kMost || at.right.size() > at.r + kMost) {
    return false;
  }
  const bool has_error = at.left.back().kind == BlockRecordKind::kError &&
                         at.left.back().error == flow::Status::kEndOfTrace;
  return (at.r >= at.right.size() && has_error) || at.l >= at.left.size();
}

// FlowDecoder, as libipt 2.2, follows the code to where a second TIP.PGD would bind, and only then
// sees that tracing is off.
bool walks_while_off(const DifferentialCase& made, const Place& at) {
  return !made.is_genuine && is_kind(at.right, at.r, BlockRecordKind::kRun) &&
         is_kind(at.right, at.r + 1, BlockRecordKind::kError) &&
         at.right[at.r + 1].error == flow::Status::kBadContext;
}

struct Explanation {
  const char* name;
  const char* reason;
  bool (*holds)(const DifferentialCase&, const Place&);
};

constexpr Explanation kStaysInFilter{
    "SKL014 within the filter",
    "libipt's block decoder, when it ends blocks at calls and jumps, takes the first direct branch "
    "for the one that left the filter, wherever it leads",
    stays_in_filter};
constexpr Explanation kSwallowsJump{
    "jump before a PTWRITE",
    "libipt's block decoder takes a PTWRITE whose PTW has an IP into the block of the direct call "
    "or jump before it",
    swallows_jump};
constexpr Explanation kVmentry{
    "SKD022",
    "libipt's block decoder takes a VMRESUME whose FUP it passes over into the block of the direct "
    "call or jump before it",
    is_vmentry};

constexpr std::array kOracleExplanations = {
    Explanation{"falls out of the filter",
                "libipt's instruction decoder lets no straight code leave the filter: it goes one "
                "instruction further than TIP.PGD says",
                falls_out},
    kStaysInFilter,
    kSwallowsJump,
    kVmentry,
    Explanation{"resumes after a MOV to CR3",
                "behind a MOV to CR3 that switched tracing off, libipt's block decoder expects it "
                "to go on at that very instruction, its instruction decoder behind it",
                resumes},
    Explanation{"damage",
                "where packets and code disagree, libipt's two decoders look at them in another "
                "order and find another error, or an event more or less before it",
                is_damaged},
};

constexpr std::array kFlowExplanations = {
    kStaysInFilter,
    kSwallowsJump,
    kVmentry,
    Explanation{"damage: libipt's block cache keeps a mode",
                "its blocks have the execution mode in which they were first met", keeps_mode},
    Explanation{"damage: the trace ends within a packet",
                "libipt 2.0.5 reads ahead and says so at once; FlowDecoder tells what comes before",
                is_cut_short},
    Explanation{"damage: a run while tracing is off",
                "FlowDecoder, as libipt 2.2, follows the code to where an event would bind, and "
                "then sees that it must not be there",
                walks_while_off},
};

std::string told(const Records& records, size_t index) {
  if (index >= records.size()) return "the end";
  const BlockRecord& record = records[index];
  switch (record.kind) {
    case BlockRecordKind::kSync:
      return "a PSB";
    case BlockRecordKind::kRun:
      return "a run";
    case BlockRecordKind::kEvent:
      return std::string(flow::name(record.event.kind));
    case BlockRecordKind::kError:
      return std::string(flow::text(record.error));
  }
  return {};
}

// Such an event has a time for each of them.
bool has_several_packets(EventKind kind) {
  switch (kind) {
    case EventKind::kEnabled:
    case EventKind::kDisabled:
    case EventKind::kStop:
    case EventKind::kCbr:
    case EventKind::kMnt:
      return false;
    default:
      return true;
  }
}

}  // namespace

std::string oracle_explanation(const DifferentialCase& made, const Place& place) {
  for (const Explanation& entry : kOracleExplanations) {
    if (entry.holds(made, place)) return entry.name;
  }
  return {};
}

std::string flow_explanation(const DifferentialCase& made, const Place& at) {
  for (const Explanation& entry : kFlowExplanations) {
    if (entry.holds(made, at)) return entry.name;
  }
  if (made.is_genuine) return {};
  if (meets_later(at.left, at.l, at.right, at.r)) return "damage: libipt meets it earlier";
  if (meets_later(at.right, at.r, at.left, at.l)) return "damage: libipt meets it later";
  return fmt::format("damage: {} | {}", told(at.left, at.l), told(at.right, at.r));
}

const char* flow_passes(const BlockRecord& libipt, const BlockRecord& flow) {
  if (libipt.kind != BlockRecordKind::kEvent || flow.kind != BlockRecordKind::kEvent) {
    return nullptr;
  }
  if (libipt.event.kind == EventKind::kPtwrite && flow.event.ip_suppressed) {
    flow::Event with_ip = flow.event;
    with_ip.ip_suppressed = false;
    with_ip.ip = libipt.event.ip;
    return same_event(libipt.event, with_ip) ? "PTWRITE without IP" : nullptr;
  }
  if (!same_event(libipt.event, flow.event) || libipt.resumed != flow.resumed) return nullptr;
  const bool is_vmentry = flow.event.kind == EventKind::kDisabled && flow.event.at != 0;
  return has_several_packets(libipt.event.kind) || is_vmentry
             ? "time of an event of several packets"
             : nullptr;
}

std::string oracle_explanations() {
  std::string text;
  for (const Explanation& entry : kOracleExplanations) {
    text += fmt::format("{}: {}\n", entry.name, entry.reason);
  }
  for (const Explanation& entry : kFlowExplanations) {
    if (text.find(entry.name) != std::string::npos) continue;
    text += fmt::format("{}: {}\n", entry.name, entry.reason);
  }
  return text +
         "PTWRITE without IP: libipt 2.0.5 fills in the address that it bound the event to\n"
         "time of an event of several packets: libipt 2.0.5 takes the first packet's, FlowDecoder, "
         "as libipt 2.2, the last one's\n";
}

}  // namespace auxtrail::decode::testing
