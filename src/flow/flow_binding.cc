// FlowDecoder: where an event happened.
//
// An event is looked at in two situations. Between two blocks (trailing_event): does it belong
// right here? If not, the next block is built up to the place where it does (proceed_to_event).
// Some events belong anywhere, some to the address they tell, some to the next instruction of their
// kind. Such an instruction is *postponed*: the flow leaves it only when no more events bind to it.
#include "flow/flow_decoder.h"
#include "flow/flow_instruction.h"

namespace auxtrail::flow {
namespace {

enum class Place : uint8_t {
  kAnywhere,
  kIpIfTracing,  // at the address it tells, if tracing is on
  kIp,           // at the address it tells
  kOther,        // as the kind has it
};

Place place_of(EventKind kind) {
  switch (kind) {
    case EventKind::kExecMode:
    case EventKind::kExstop:
    case EventKind::kMwait:
    case EventKind::kInterruptFlag:
    case EventKind::kInterrupt:
    case EventKind::kSmi:
    case EventKind::kInit:
    case EventKind::kVmexit:
    case EventKind::kShutdown:
    case EventKind::kUintr:
    case EventKind::kSwintr:
    case EventKind::kSyscall:
    case EventKind::kBlockEnd:
      return Place::kIpIfTracing;
    case EventKind::kAsyncDisabled:
    case EventKind::kAsyncBranch:
    case EventKind::kAsyncPaging:
    case EventKind::kAsyncVmcs:
    case EventKind::kTsx:
      return Place::kIp;
    case EventKind::kTnt:
    case EventKind::kTip:
    case EventKind::kDisabled:
    case EventKind::kTrigger:
      return Place::kOther;
    default:
      return Place::kAnywhere;
  }
}

// The address that decides where the event belongs.
uint64_t place_ip(const Event& event) {
  const bool at = event.kind == EventKind::kAsyncDisabled || event.kind == EventKind::kAsyncBranch;
  return at ? event.at : event.ip;
}

bool place_is_known(const Event& event) {
  return event.kind == EventKind::kAsyncDisabled || event.kind == EventKind::kAsyncBranch ||
         !event.ip_suppressed;
}

bool belongs_at(const Event& event, uint64_t ip, bool enabled) {
  switch (place_of(event.kind)) {
    case Place::kIpIfTracing:
      return !enabled || event.ip_suppressed || event.ip == ip;
    case Place::kIp:
      return !place_is_known(event) || place_ip(event) == ip;
    default:
      return true;
  }
}

}  // namespace

const FlowDecoder::BindingInstruction* FlowDecoder::binding_instruction(EventKind kind) {
  static constexpr BindingInstruction kPaging{kBoundPaging, binds_to_pip, false};
  static constexpr BindingInstruction kVmcs{kBoundVmcs, binds_to_vmcs, false};
  static constexpr BindingInstruction kPtwrite{kBoundPtwrite, is_ptwrite, true};
  static constexpr BindingInstruction kIret{kBoundIret, is_iret, true};
  static constexpr BindingInstruction kVmentry{kBoundVmentry, is_vmentry, true};
  static constexpr BindingInstruction kUiret{kBoundUiret, is_uiret, true};
  switch (kind) {
    case EventKind::kPaging:
      return &kPaging;
    case EventKind::kVmcs:
      return &kVmcs;
    case EventKind::kPtwrite:
      return &kPtwrite;
    case EventKind::kIret:
      return &kIret;
    case EventKind::kVmentry:
      return &kVmentry;
    case EventKind::kUiret:
      return &kUiret;
    default:
      return nullptr;
  }
}

// Builds the block up to where the held event belongs.
FlowDecoder::Step FlowDecoder::proceed_to_event() {
  if (const BindingInstruction* binding = binding_instruction(event_.kind)) {
    return enabled_ ? proceed_to_binding(*binding) : Step::kReached;
  }
  if (event_.kind == EventKind::kDisabled) {
    return event_.status_update ? Step::kReached : proceed_to_disabled();
  }
  if (event_.kind == EventKind::kTrigger) return proceed_to_trigger();
  const Place place = place_of(event_.kind);
  if (place == Place::kAnywhere || !place_is_known(event_)) return Step::kReached;
  if (place == Place::kIpIfTracing && !enabled_) return Step::kReached;
  const Step step = proceed_to_ip(place_ip(event_));
  if (step == Step::kReached && event_.kind == EventKind::kAsyncDisabled && config_.errata.skd022 &&
      turn_disable_synchronous()) {
    return proceed_to_event();
  }
  return step;
}

FlowDecoder::Step FlowDecoder::proceed_to_disabled() {
  Step step = Step::kReached;
  if (!event_.ip_suppressed) {
    step = proceed_to_ip(event_.ip);
  } else if (config_.errata.skl014 && config_.has_filter()) {
    step = proceed_to_disabled_by_filter();
  } else {
    step = proceed_to(changes_cr3);
  }
  if (step != Step::kFailed || failure_ != Status::kBadQuery) return step;
  // Any branch that would need a packet to go on is where tracing went off.
  set_resume_ip(block_.last, block_.last_ip);
  return Step::kReached;
}

// SKL014: a direct branch out of the filter, too, ends with a TIP.PGD that tells no address.
FlowDecoder::Step FlowDecoder::proceed_to_disabled_by_filter() {
  const auto may_leave = [](const Instruction& insn) {
    return insn.cls == InsnClass::kJump || insn.cls == InsnClass::kCall || changes_cr3(insn);
  };
  const Step step = proceed_to(may_leave);
  if (step != Step::kReached || changes_cr3(block_.last)) return step;
  uint64_t to = 0;
  (void)next_ip(block_.last, block_.last_ip, to);
  if (!config_.traces(to)) return Step::kReached;
  ip_ = to;
  return Step::kBlockEnd;
}

// Where tracing will go on, if it is where one would think: a called function returns.
void FlowDecoder::set_resume_ip(const Instruction& insn, uint64_t ip) {
  const bool is_call = insn.cls == InsnClass::kCall || insn.cls == InsnClass::kCallIndirect ||
                       insn.cls == InsnClass::kFarCall;
  ip_ = is_call ? ip + insn.length : 0;
}

FlowDecoder::Step FlowDecoder::proceed_to_binding(const BindingInstruction& binding) {
  Step step = Step::kReached;
  if (binding.may_tell_ip && !event_.ip_suppressed) {
    step = proceed_to_ip(event_.ip);
    if (step == Step::kReached) step = take_instruction();
  } else {
    step = proceed_to(binding.matches);
  }
  if (step != Step::kReached) return step;
  bound_ |= binding.bound;
  postpone();
  return Step::kReached;
}

// A TRIG packet without address counts instructions from a place that the packets before it tell.
FlowDecoder::Step FlowDecoder::anchor_trigger() {
  if (event_.ip != 0) return Step::kReached;
  if (!has_count_ || event_.payload < count_) return fail(Status::kBadPacket);
  event_.payload -= count_;
  event_.ip = ip_;
  return Step::kReached;
}

FlowDecoder::Step FlowDecoder::proceed_to_trigger() {
  if (event_.ip_suppressed) return Step::kReached;
  Step step = anchor_trigger();
  if (step != Step::kReached || !enabled_) return step;
  step = proceed_to_ip(event_.ip);
  if (step != Step::kReached) return step;
  // The event keeps where counting is, for it may go on in the next block.
  while (event_.payload != 0) {
    step = take_instruction();
    if (step != Step::kReached) return step;
    if (pass_instruction() == Step::kFailed) return Step::kFailed;
    event_.ip = ip_;
    --event_.payload;
  }
  return Step::kReached;
}

bool FlowDecoder::wants_tick() const {
  return config_.tick_events && behind_block_ && event_.has_tsc && event_.tsc != tsc_;
}

// Whether an event belongs right where the flow is: kReached. kBlockEnd: none does.
FlowDecoder::Step FlowDecoder::trailing_event() {
  while (true) {
    if (!has_event_ && status_ == Status::kOk) fetch();
    if (status_ != Status::kOk) {
      if (leave_postponed() != Step::kReached) return Step::kFailed;
      return status_ == Status::kEndOfTrace ? Step::kBlockEnd : Step::kReached;
    }
    if (event_.kind != EventKind::kTnt || wants_tick() || event_.small != 0) break;
    consume();
  }
  if (const BindingInstruction* binding = binding_instruction(event_.kind)) {
    return trailing_binding(*binding);
  }
  switch (event_.kind) {
    case EventKind::kTnt: {
      // The time of the first bit, unless the block ended before it was used.
      const InsnClass cls = block_.last.cls;
      const bool used = cls == InsnClass::kCondJump || cls == InsnClass::kReturn;
      return wants_tick() && used ? Step::kReached : nothing_trails();
    }
    case EventKind::kTip:
      return nothing_trails();
    case EventKind::kDisabled:
      return trailing_disabled();
    case EventKind::kTrigger:
      return trailing_trigger();
    default:
      return trailing_at_ip();
  }
}

FlowDecoder::Step FlowDecoder::nothing_trails() {
  return leave_postponed() == Step::kReached ? Step::kBlockEnd : Step::kFailed;
}

FlowDecoder::Step FlowDecoder::trailing_binding(const BindingInstruction& binding) {
  if (!enabled_) return Step::kReached;
  const bool tells_ip = binding.may_tell_ip && !event_.ip_suppressed;
  if (!postponed_ || (bound_ & binding.bound) != 0 || tells_ip ||
      !binding.matches(postponed_insn_)) {
    return nothing_trails();
  }
  bound_ |= binding.bound;
  return Step::kReached;
}

FlowDecoder::Step FlowDecoder::trailing_disabled() {
  if (!postponed_) return nothing_trails();
  if (event_.ip_suppressed && changes_cr3(postponed_insn_)) return Step::kReached;
  if (!next_ip(postponed_insn_, postponed_ip_, ip_)) {
    set_resume_ip(postponed_insn_, postponed_ip_);
    return Step::kReached;
  }
  clear_postponed();
  if (!event_.ip_suppressed && ip_ == event_.ip) return Step::kReached;
  return Step::kBlockEnd;
}

FlowDecoder::Step FlowDecoder::trailing_at_ip() {
  if (leave_postponed() != Step::kReached) return Step::kFailed;
  if (event_.kind == EventKind::kTsx && behind_block_ && config_.errata.bdm64) repair_abort();
  if (!belongs_at(event_, ip_, enabled_)) return Step::kBlockEnd;
  if (event_.kind == EventKind::kAsyncDisabled && config_.errata.skd022 &&
      turn_disable_synchronous()) {
    return Step::kBlockEnd;
  }
  return Step::kReached;
}

FlowDecoder::Step FlowDecoder::trailing_trigger() {
  if (leave_postponed() != Step::kReached) return Step::kFailed;
  if (!enabled_ || event_.ip_suppressed) return Step::kReached;
  if (anchor_trigger() != Step::kReached) return Step::kFailed;
  if (event_.payload != 0) return Step::kBlockEnd;
  return event_.ip == ip_ ? Step::kReached : fail(Status::kBadPacket);
}

}  // namespace auxtrail::flow
