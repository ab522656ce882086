#include "decode/testing/oracle_explanations.h"

#include <fmt/format.h>

#include <array>

namespace auxtrail::decode::testing {
namespace {

using Records = std::vector<BlockRecord>;

bool is_event(const Records& records, size_t index, flow::EventKind kind) {
  return index < records.size() && records[index].kind == BlockRecordKind::kEvent &&
         records[index].event.kind == kind;
}

bool falls_out(const DifferentialCase&, size_t index, const Records& blocks, const Records& insns) {
  if (index >= insns.size() || insns[index].kind != BlockRecordKind::kRun) return false;
  if (is_event(blocks, index, flow::EventKind::kDisabled)) {
    return insns[index].first_ip == blocks[index].event.ip;
  }
  return is_event(blocks, index + 1, flow::EventKind::kDisabled) &&
         insns[index].first_ip == blocks[index].first_ip &&
         insns[index].instructions > blocks[index].instructions;
}

bool stays_in_filter(const DifferentialCase& made, size_t index, const Records& blocks,
                     const Records& insns) {
  return made.config.model == 0x5e && made.config.filter_end != 0 &&
         is_event(blocks, index, flow::EventKind::kDisabled) && blocks[index].event.ip_suppressed &&
         index < insns.size() && insns[index].kind == BlockRecordKind::kRun;
}

bool is_vmentry(const DifferentialCase& made, size_t index, const Records& blocks,
                const Records& insns) {
  return made.config.model == 0x5e && is_event(blocks, index + 1, flow::EventKind::kDisabled) &&
         index < insns.size() && insns[index].first_ip == blocks[index].first_ip &&
         insns[index].instructions < blocks[index].instructions;
}

bool swallows_jump(const DifferentialCase&, size_t index, const Records& blocks,
                   const Records& insns) {
  return is_event(blocks, index + 1, flow::EventKind::kPtwrite) && index < insns.size() &&
         blocks[index].last_ip == blocks[index + 1].event.ip &&
         insns[index].first_ip == blocks[index].first_ip &&
         insns[index].instructions < blocks[index].instructions;
}

bool resumes(const DifferentialCase&, size_t index, const Records& blocks, const Records& insns) {
  return is_event(blocks, index, flow::EventKind::kEnabled) &&
         is_event(insns, index, flow::EventKind::kEnabled) &&
         insns[index].resumed != blocks[index].resumed &&
         blocks[index].event.ip == insns[index].event.ip;
}

bool is_damaged(const DifferentialCase& made, size_t, const Records&, const Records&) {
  return !made.is_genuine;
}

struct Explanation {
  const char* name;
  const char* reason;
  bool (*holds)(const DifferentialCase&, size_t, const Records&, const Records&);
};
constexpr std::array kExplanations = {
    Explanation{"falls out of the filter",
                "libipt's instruction decoder lets no straight code leave the filter: it goes one "
                "instruction further than TIP.PGD says",
                falls_out},
    Explanation{"SKL014 within the filter",
                "libipt's block decoder, when it ends blocks at calls and jumps, takes the first "
                "direct branch for the one that left the filter; its instruction decoder does not",
                stays_in_filter},
    Explanation{"jump before a PTWRITE",
                "libipt's block decoder takes a PTWRITE whose PTW has an IP into the block of the "
                "direct call or jump before it",
                swallows_jump},
    Explanation{
        "SKD022",
        "libipt's block decoder takes a VMRESUME whose FUP it passes over into the block of "
        "the direct call or jump before it",
        is_vmentry},
    Explanation{"resumes after a MOV to CR3",
                "behind a MOV to CR3 that switched tracing off, libipt's block decoder expects it "
                "to go on at "
                "that very instruction, its instruction decoder behind it",
                resumes},
    Explanation{
        "damage",
        "where packets and code disagree, the two decoders look at them in another order and "
        "find another error, or an event more or less before it",
        is_damaged},
};

}  // namespace

const char* oracle_explanation(const DifferentialCase& made, size_t index, const Records& blocks,
                               const Records& insns) {
  for (const Explanation& entry : kExplanations) {
    if (entry.holds(made, index, blocks, insns)) return entry.name;
  }
  return nullptr;
}

std::string oracle_explanations() {
  std::string text;
  for (const Explanation& entry : kExplanations) {
    text += fmt::format("{}: {}\n", entry.name, entry.reason);
  }
  return text;
}

}  // namespace auxtrail::decode::testing
