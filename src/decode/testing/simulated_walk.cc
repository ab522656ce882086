// The walk: what each instruction does, and what happens in between.
#include "decode/testing/simulated_walk.h"

#include <algorithm>
#include <utility>

namespace auxtrail::decode::testing {
namespace {

constexpr size_t kMaxCalls = 100;
constexpr uint64_t kCr3Mask = 0x000f'ffff'ffff'ffe0;
constexpr uint64_t kVmcsMask = 0x000f'ffff'ffff'f000;

// What a transaction does not survive.
bool aborts(SimOp op) {
  return op == SimOp::kSyscall || op == SimOp::kFar || op == SimOp::kMovToCr3 ||
         op == SimOp::kVmptrld || op == SimOp::kMwait || op == SimOp::kXabort;
}

}  // namespace

SimulatedWalk::SimulatedWalk(const SimulatedProgram& program, const WalkOptions& options,
                             uint64_t seed)
    : program_(program), options_(options), random_(seed), encoder_(options.encoder, ~seed) {}

SimulatedTrace SimulatedWalk::run() {
  start();
  for (size_t i = 0; i < options_.steps; ++i) step();
  finish();
  trace_.bytes = encoder_.take();
  return std::move(trace_);
}

bool SimulatedWalk::is_traced(uint32_t index) const {
  if (options_.filter_end == 0) return true;
  const uint64_t address = insn(index).ip;
  return options_.filter_start <= address && address <= options_.filter_end;
}

uint32_t SimulatedWalk::random_traced() {
  for (int tries = 0; tries < 16; ++tries) {
    const uint32_t index = program_.random_insn(random_);
    if (is_traced(index)) return index;
  }
  uint32_t index = 0;
  while (!is_traced(index)) ++index;
  return index;
}

void SimulatedWalk::start() {
  at_ = random_traced();
  if (!options_.start_in_psb) {
    psb_plus();
    on();
    return;
  }
  on_ = true;
  psb_plus();
  trace_begin();
}

void SimulatedWalk::finish() {
  if (!on_) return;
  if (options_.open_end) {
    encoder_.flush();
    const uint64_t known = encoder_.written_mark();
    for (size_t i = known == 0 ? 0 : known - 1; i < trace_.truth.size(); ++i) {
      trace_.truth[i].is_optional = true;
    }
    trace_.open_end = true;
    trace_.is_complete = false;
    return;
  }
  encoder_.fup(ip());
  encoder_.pgd(std::nullopt);
  trace_end(ip());
}

void SimulatedWalk::step() {
  if (!on_) {
    while_off();
    return;
  }
  maybe_something_else();
  if (!on_) return;
  const SimInsn& now = insn(at_);
  passed_.push_back(now.ip);
  if (in_transaction_ && aborts(now.op)) {
    abort_transaction();
    return;
  }
  if (leads_to_passed(now)) {
    interrupt();
    return;
  }
  ++trace_.instructions;
  encoder_.run(static_cast<uint32_t>(random_.below(random_.one_in(32) ? 2000 : 12)));
  execute(now);
  if (encoder_.psb_due()) psb_plus();
}

// Whether the flow would come to an address a second time without a packet since the first.
bool SimulatedWalk::leads_to_passed(const SimInsn& now) const {
  uint64_t to = now.next_ip();
  switch (now.op) {
    case SimOp::kConditional:
    case SimOp::kJumpIndirect:
    case SimOp::kCallIndirect:
    case SimOp::kReturn:
    case SimOp::kSyscall:
    case SimOp::kFar:
      return false;
    case SimOp::kJump:
    case SimOp::kCall:
      to = insn(now.target).ip;
      break;
    default:
      break;
  }
  return std::find(passed_.begin(), passed_.end(), to) != passed_.end();
}

void SimulatedWalk::maybe_something_else() {
  if (random_.percent(options_.interrupt_percent)) interrupt();
  if (on_ && random_.below(1000) < options_.overflow_per_mille) lose_packets();
  if (options_.encoder.cbr && random_.one_in(200)) {
    encoder_.cbr(static_cast<uint8_t>(random_.between(8, 40)));
  }
  if (options_.encoder.mnt && random_.one_in(300)) encoder_.mnt(random_.next());
  if (options_.encoder.power && on_ && random_.one_in(300)) {  // stopped by the hardware
    encoder_.pwre(static_cast<uint8_t>(random_.below(8)), static_cast<uint8_t>(random_.below(8)),
                  true);
    encoder_.exstop(true);
    mark();
    encoder_.fup(ip());
    encoder_.pwrx(static_cast<uint8_t>(random_.below(8)), static_cast<uint8_t>(random_.below(8)),
                  8);
  }
}

void SimulatedWalk::execute(const SimInsn& now) {
  switch (now.op) {
    case SimOp::kConditional:
      return execute_conditional(now);
    case SimOp::kJump:
    case SimOp::kCall:
      return execute_direct(now, now.target);
    case SimOp::kJumpIndirect:
    case SimOp::kCallIndirect:
      return execute_near(now, program_.random_near(at_, random_));
    case SimOp::kReturn:
      return execute_near(now, return_target());
    case SimOp::kSyscall:
    case SimOp::kFar:
      return execute_far(now);
    default:
      return execute_plain(now);
  }
}

void SimulatedWalk::execute_conditional(const SimInsn& now) {
  const bool taken = random_.one_in(2);
  const uint32_t to = taken ? now.target : at_ + 1;
  const uint64_t to_ip = insn(to).ip;
  if (!is_traced(to)) {
    if (to_ip == now.next_ip()) {
      not_taken(now);
      trace_end(now.ip);
    } else {
      branch(now, to_ip, true);
    }
    mark();
    encoder_.pgd(to_ip);
    off(GapKind::kDisabled, now.ip);
    return;
  }
  if (to_ip == now.next_ip()) {
    not_taken(now);
  } else {
    branch(now, to_ip, false);
  }
  mark();
  encoder_.conditional(taken);
  passed_.clear();
  at_ = to;
}

void SimulatedWalk::execute_direct(const SimInsn& now, uint32_t to) {
  const uint64_t to_ip = insn(to).ip;
  if (!is_traced(to)) {
    const bool tells = !options_.skl014 || random_.one_in(2);
    branch(now, tells ? to_ip : 0, true);
    mark();
    encoder_.pgd(tells ? std::optional(to_ip) : std::nullopt);
    off(GapKind::kDisabled, now.ip);
    return;
  }
  if (now.op == SimOp::kCall && to_ip != now.next_ip()) {
    encoder_.call(now.next_ip());
    if (calls_.size() < kMaxCalls) calls_.push_back(at_ + 1);
  }
  branch(now, to_ip, false);
  at_ = to;
}

// With a packet that tells where to.
void SimulatedWalk::execute_near(const SimInsn& now, uint32_t to) {
  const uint64_t to_ip = insn(to).ip;
  if (!is_traced(to)) {
    branch(now, to_ip, true);
    mark();
    encoder_.pgd(to_ip);
    off(GapKind::kDisabled, now.ip);
    return;
  }
  branch(now, to_ip, false);
  mark();
  if (now.op == SimOp::kReturn) {
    encoder_.near_return(to_ip);
  } else {
    if (now.op == SimOp::kCallIndirect) {
      encoder_.call(now.next_ip());
      if (calls_.size() < kMaxCalls) calls_.push_back(at_ + 1);
    }
    encoder_.indirect(to_ip);
  }
  passed_.clear();
  at_ = to;
}

uint32_t SimulatedWalk::return_target() {
  if (calls_.empty()) return program_.random_near(at_, random_);
  const uint32_t to = calls_.back();
  calls_.pop_back();
  // Another task's stack, now and then; or code of another mode.
  if (random_.one_in(20) || program_.mode(to) != program_.mode(at_)) {
    return program_.random_near(at_, random_);
  }
  return to;
}

void SimulatedWalk::execute_far(const SimInsn& now) {
  const uint32_t to =
      random_.one_in(2) ? program_.random_near(at_, random_) : program_.random_insn(random_);
  if (options_.user_only || !is_traced(to)) {
    branch(now, options_.user_only ? 0 : insn(to).ip, true);
    mark();
    encoder_.pgd(options_.user_only ? std::nullopt : std::optional(insn(to).ip));
    off(GapKind::kDisabled, now.ip);
    return;
  }
  branch(now, insn(to).ip, false);
  mark();
  encoder_.flush();
  if (options_.encoder.pip && random_.one_in(3)) {
    cr3_ = random_.next() & kCr3Mask;
    encoder_.pip(cr3_, random_.one_in(2));
    if (random_.one_in(3)) encoder_.vmcs(vmcs_ = random_.next() & kVmcsMask);
  }
  if (program_.mode(to) != program_.mode(at_) || random_.one_in(4)) {
    encoder_.mode_exec(program_.mode(to));
  }
  encoder_.tip(insn(to).ip);
  passed_.clear();
  at_ = to;
}

void SimulatedWalk::execute_plain(const SimInsn& now) {
  switch (now.op) {
    case SimOp::kPtwrite:
      ptwrite(now);
      break;
    case SimOp::kMwait:
      mwait(now);
      break;
    case SimOp::kMovToCr3:
      return move_to_cr3(now);
    case SimOp::kVmptrld:
      if (!options_.encoder.pip) break;
      mark();
      encoder_.vmcs(vmcs_ = random_.next() & kVmcsMask);
      break;
    case SimOp::kXbegin:
    case SimOp::kXend:
      return begin_transaction(now);
    default:
      break;
  }
  fall_through(now);
}

void SimulatedWalk::fall_through(const SimInsn& now) {
  if (is_traced(at_ + 1)) {
    ++at_;
    return;
  }
  trace_end(now.ip);
  mark();
  encoder_.pgd(now.next_ip());
  off(GapKind::kDisabled, now.ip);
}

void SimulatedWalk::ptwrite(const SimInsn& now) {
  if (!options_.encoder.ptw) return;
  mark();
  encoder_.ptw(random_.next(), random_.one_in(2), options_.encoder.ptw_ip);
  if (options_.encoder.ptw_ip) encoder_.fup(now.ip);
}

void SimulatedWalk::mwait(const SimInsn& now) {
  if (!options_.encoder.power) return;
  mark();
  encoder_.mwait(static_cast<uint32_t>(random_.below(0x80)), 1);
  const auto state = static_cast<uint8_t>(random_.below(8));
  encoder_.pwre(state, 0, false);
  encoder_.exstop(true);
  encoder_.fup(now.ip);
  encoder_.pwrx(state, state, static_cast<uint8_t>(random_.one_in(2) ? 1 : 4));
}

// Whether TIP.PGD packets without an address may come: they bind to the first MOV to CR3 there is.
bool SimulatedWalk::binds_without_ip() const { return options_.user_only || options_.skl014; }

void SimulatedWalk::move_to_cr3(const SimInsn& now) {
  if (binds_without_ip()) {  // a program must not, and a process may be filtered by its CR3
    if (random_.one_in(2)) {
      --trace_.instructions;
      interrupt();
      return;
    }
    trace_end(now.ip);
    mark();
    encoder_.pgd(std::nullopt);
    off(GapKind::kDisabled, now.ip);
    return;
  }
  if (options_.encoder.pip) {
    cr3_ = random_.next() & kCr3Mask;
    mark();
    encoder_.pip(cr3_, false);
  }
  fall_through(now);
}

void SimulatedWalk::begin_transaction(const SimInsn& now) {
  const bool begins = now.op == SimOp::kXbegin;
  fall_through(now);
  if (!on_ || !options_.transactions || begins == in_transaction_) return;
  in_transaction_ = begins;
  if (begins) abort_target_ = now.target;
  mark();
  encoder_.mode_tsx(begins, false);
  encoder_.fup(ip());
}

void SimulatedWalk::branch(const SimInsn& now, uint64_t to, bool ends) {
  trace_.truth.push_back(
      {FlowRecordKind::kBranch, branch_kind(now.op), {}, {}, ends, false, now.ip, to, 0});
}

void SimulatedWalk::not_taken(const SimInsn& now) {
  FlowRecord record;
  record.kind = FlowRecordKind::kNotTaken;
  record.from = now.ip;
  trace_.truth.push_back(record);
}

void SimulatedWalk::trace_end(uint64_t from) {
  trace_.truth.push_back(
      {FlowRecordKind::kBranch, BranchKind::kTraceEnd, {}, {}, true, false, from, 0, 0});
}

void SimulatedWalk::trace_begin() {
  if (std::exchange(has_gap_, false)) {
    gap_.to = ip();
    trace_.truth.push_back(gap_);
  }
  trace_.truth.push_back(
      {FlowRecordKind::kBranch, BranchKind::kTraceBegin, {}, {}, false, false, 0, ip(), 0});
}

}  // namespace auxtrail::decode::testing
