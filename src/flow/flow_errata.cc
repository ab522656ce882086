// FlowDecoder: errata that only the code can tell.
#include "flow/flow_decoder.h"
#include "flow/flow_instruction.h"

namespace auxtrail::flow {
namespace {

// How far an abort's address may lie from a branch's target, in instructions.
constexpr int kMaxAbortSteps = 0x100;

}  // namespace

// SKD022: on VMLAUNCH and VMRESUME a FUP too many makes the disabling look asynchronous. Whether it
// was too many cannot be told for certain; it is taken to be. True if the held event was changed.
bool FlowDecoder::turn_disable_synchronous() {
  Instruction insn;
  const CodeSection* section = nullptr;
  bool crosses = false;
  if (instruction_at(event_.at, mode(), insn, section, crosses) != Status::kOk) return false;
  if (!is_vmentry(insn)) return false;
  event_.kind = EventKind::kDisabled;
  return true;
}

// BDM64: the target of the branch before a transaction's abort may be wrong. If the place of the
// abort cannot be reached from there, the branch is taken to have led to it.
void FlowDecoder::repair_abort() {
  if (event_.ip_suppressed || !event_.flag2 || block_.instructions == 0) return;
  if (!is_branch(block_.last)) return;
  if (!leads_to(ip_, event_.ip, kMaxAbortSteps)) ip_ = event_.ip;
}

// Whether the code leads from `from` to `to` without a packet.
bool FlowDecoder::leads_to(uint64_t from, uint64_t to, int steps) const {
  const CodeSection* section = nullptr;
  while (from != to) {
    Instruction insn;
    bool crosses = false;
    if (steps-- == 0) return false;
    if (instruction_at(from, mode(), insn, section, crosses) != Status::kOk) return false;
    if (!next_ip(insn, from, from)) return false;
  }
  return true;
}

}  // namespace auxtrail::flow
