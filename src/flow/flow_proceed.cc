// FlowDecoder: the way through the code, instruction by instruction.
#include <algorithm>

#include "flow/flow_decoder.h"
#include "flow/flow_instruction.h"

namespace auxtrail::flow {
namespace {

constexpr size_t kMaxInstructionBytes = 15;
// libipt counts a block's instructions in 16 bits.
constexpr uint32_t kMaxBlockInstructions = 0xffff;

}  // namespace

// Decodes what stands at `ip`. An instruction may reach into the next section (`crosses`).
Status FlowDecoder::instruction_at(uint64_t ip, ExecMode mode, Instruction& insn,
                                   const CodeSection*& section, bool& crosses) const {
  crosses = false;
  if (section == nullptr || ip - section->address >= section->bytes.size()) {
    section = code_->find(ip);
  }
  if (section == nullptr) return Status::kNoMap;
  const auto rest = section->bytes.subspan(ip - section->address);
  const size_t here = std::min(rest.size(), kMaxInstructionBytes);
  if (decode_instruction(rest.data(), here, mode, insn)) return Status::kOk;
  if (here == kMaxInstructionBytes) return Status::kBadInstruction;
  uint8_t bytes[kMaxInstructionBytes];
  const size_t count = code_->read(ip, bytes, sizeof(bytes));
  if (count == here || !decode_instruction(bytes, count, mode, insn)) {
    return Status::kBadInstruction;
  }
  crosses = true;
  return Status::kOk;
}

// Adds the instruction at ip_ to the block, and stays there.
FlowDecoder::Step FlowDecoder::take_instruction() {
  if (block_is_full_ || block_.instructions == kMaxBlockInstructions) return Step::kBlockEnd;
  const CodeSection* section = section_;
  Instruction insn;
  bool crosses = false;
  const Status status = instruction_at(ip_, mode(), insn, section, crosses);
  if (status != Status::kOk) return fail(status);
  // A block lies in one section.
  if (section != section_ && block_.instructions != 0) return Step::kBlockEnd;
  section_ = section;
  block_is_full_ = crosses;

  // A direct call to the next instruction only asks where it is: nobody returns from there.
  if (insn.cls == InsnClass::kCallIndirect ||
      (insn.cls == InsnClass::kCall && insn.relative != 0)) {
    returns_.push(ip_ + insn.length);
  }
  block_.last = insn;
  block_.last_ip = ip_;
  ++block_.instructions;
  if (has_count_ && ++count_ == 0) return fail(Status::kOverflow);
  return Step::kReached;
}

// Moves behind the block's last instruction, if that takes no packet. kBlockEnd: it was a branch.
FlowDecoder::Step FlowDecoder::pass_instruction() {
  if (!next_ip(block_.last, block_.last_ip, ip_)) return fail(Status::kBadQuery);
  const InsnClass cls = block_.last.cls;
  const bool is_branch = cls == InsnClass::kCall || cls == InsnClass::kJump;
  return is_branch ? Step::kBlockEnd : Step::kReached;
}

// To an instruction that `matches`, which becomes the block's last; ip_ stays at it.
FlowDecoder::Step FlowDecoder::proceed_to(Predicate matches) {
  while (true) {
    Step step = take_instruction();
    if (step != Step::kReached) return step;
    if (matches(block_.last)) return Step::kReached;
    step = pass_instruction();
    if (step != Step::kReached) return step;
  }
}

// To `ip`, before the instruction there.
FlowDecoder::Step FlowDecoder::proceed_to_ip(uint64_t ip) {
  while (ip_ != ip) {
    Step step = take_instruction();
    if (step != Step::kReached) return step;
    step = pass_instruction();
    if (step == Step::kBlockEnd) return ip_ == ip ? Step::kReached : Step::kBlockEnd;
    if (step != Step::kReached) return step;
  }
  return Step::kReached;
}

// As far as the block goes, and on to where the next one begins. No event is in the way.
FlowDecoder::Step FlowDecoder::proceed_freely() {
  const Step step = proceed_to([](const Instruction&) { return false; });
  if (step == Step::kFailed && failure_ == Status::kBadQuery) {
    return proceed_with_trace(block_.last, block_.last_ip);
  }
  return step;
}

// One bit of the TNT packet. Its event stays until somebody asks for the next one, if its time is
// to be told.
FlowDecoder::Bit FlowDecoder::take_bit() {
  if (!has_event_ || event_.kind != EventKind::kTnt || event_.small == 0) return Bit::kNone;
  --event_.small;
  moment_ = {event_.tsc, event_.cycles, event_.has_tsc};
  const bool taken = (event_.payload >> event_.small & 1) != 0;
  if (event_.small == 0 && !config_.tick_events) consume();
  return taken ? Bit::kTaken : Bit::kNotTaken;
}

// The packets say where the branch led.
FlowDecoder::Step FlowDecoder::proceed_with_trace(const Instruction& insn, uint64_t ip) {
  if (insn.cls == InsnClass::kCondJump) {
    const Bit bit = take_bit();
    if (bit == Bit::kNone) return fail(Status::kBadQuery);
    ip_ = ip + insn.length;
    if (bit == Bit::kTaken) ip_ += static_cast<uint64_t>(insn.relative);
    return Step::kReached;
  }
  if (insn.cls == InsnClass::kReturn && config_.return_compression) {
    const Bit bit = take_bit();
    if (bit == Bit::kNotTaken) return fail(Status::kBadReturnCompression);
    if (bit == Bit::kTaken) {
      ReturnStack::Entry entry;
      if (!returns_.pop(entry)) return fail(Status::kReturnStackEmpty);
      ip_ = entry.ip;
      return Step::kReached;
    }
  }
  return proceed_indirect();
}

FlowDecoder::Step FlowDecoder::proceed_indirect() {
  if (!has_event_) return fail(Status::kBadQuery);
  if (event_.kind == EventKind::kTip) {
    if (event_.ip_suppressed) return fail(Status::kBadPacket);
    const uint64_t from = ip_;
    ip_ = event_.ip;
    if (config_.tick_events && event_.tsc != tsc_) {
      event_.kind = EventKind::kTick;
      event_.ip = from;
    } else {
      consume();
    }
    return Step::kReached;
  }
  if (event_.kind != EventKind::kTnt) return fail(Status::kBadQuery);
  // A TIP may be written before the TNT packet that it follows is full: look behind that.
  EventDecoder before = events_;
  Event tip;
  if (events_.next(tip) != Status::kOk || tip.kind != EventKind::kTip) {
    events_ = std::move(before);
    return fail(Status::kBadQuery);
  }
  ip_ = tip.ip;
  return Step::kReached;
}

// The flow stays at the block's last instruction until all events that bind to it are delivered.
void FlowDecoder::postpone() {
  postponed_ = true;
  postponed_insn_ = block_.last;
  postponed_ip_ = block_.last_ip;
}

void FlowDecoder::clear_postponed() {
  postponed_ = false;
  bound_ = 0;
}

FlowDecoder::Step FlowDecoder::leave_postponed() {
  if (postponed_ && enabled_ && !next_ip(postponed_insn_, postponed_ip_, ip_)) {
    const Step step = proceed_with_trace(postponed_insn_, postponed_ip_);
    if (step != Step::kReached) return step;
  }
  clear_postponed();
  return Step::kReached;
}

}  // namespace auxtrail::flow
