// SimulatedWalk: what happens to the flow from outside: interrupts, aborts, losses, tracing off and
// on.
#include <utility>

#include "decode/testing/simulated_walk.h"

namespace auxtrail::decode::testing {
namespace {

constexpr uint64_t kCr3Mask = 0x000f'ffff'ffff'ffe0;

}  // namespace

void SimulatedWalk::interrupt() {
  if (in_transaction_) {
    abort_transaction();
    return;
  }
  async_branch(program_.random_insn(random_), options_.user_only);
}

void SimulatedWalk::abort_transaction() {
  in_transaction_ = false;
  encoder_.mode_tsx(false, true);
  async_branch(abort_target_, false);
}

void SimulatedWalk::async_branch(uint32_t to, bool leaves) {
  const uint64_t from = ip();
  mark();
  encoder_.fup(from);
  if (leaves || !is_traced(to)) {
    trace_end(from);
    mark();
    encoder_.pgd(leaves ? std::nullopt : std::optional(insn(to).ip));
    off(GapKind::kDisabled, from);
    return;
  }
  trace_.truth.push_back(
      {FlowRecordKind::kBranch, BranchKind::kAsync, {}, {}, false, false, from, insn(to).ip, 0});
  mark();
  if (options_.encoder.pip && random_.one_in(4)) {
    cr3_ = random_.next() & kCr3Mask;
    encoder_.pip(cr3_, random_.one_in(2));
  }
  if (program_.mode(to) != program_.mode(at_)) encoder_.mode_exec(program_.mode(to));
  encoder_.tip(insn(to).ip);
  passed_.clear();
  at_ = to;
}

void SimulatedWalk::lose_packets() {
  encoder_.overflow(random_.one_in(2));
  trace_.is_complete = false;
  cut_to_written();
  in_transaction_ = false;
  calls_.clear();
  const uint64_t from = ip();
  off(GapKind::kOverflow, from);
  if (random_.one_in(3)) return;
  const uint32_t to = program_.random_near(at_, random_);
  if (!is_traced(to)) return;
  at_ = to;
  if (random_.one_in(2)) encoder_.run(static_cast<uint32_t>(random_.below(3000)));
  on_ = true;
  trace_begin();
  mark();
  encoder_.fup(ip());
}

// What was told behind the last packet that came out is not known; the branch at it may be.
void SimulatedWalk::cut_to_written() {
  trace_.truth.resize(encoder_.written_mark());
  if (!trace_.truth.empty() && !trace_.truth.back().ends_trace) {
    trace_.truth.back().is_optional = true;
  }
}

void SimulatedWalk::off(GapKind kind, uint64_t from) {
  on_ = false;
  has_gap_ = true;
  gap_ = {};
  gap_.kind = FlowRecordKind::kGap;
  gap_.gap = kind;
  gap_.from = from;
  passed_.clear();
  mark();
}

void SimulatedWalk::while_off() {
  encoder_.run(static_cast<uint32_t>(random_.below(200)));
  const EncoderOptions& has = options_.encoder;
  if (has.power && random_.one_in(10)) {
    if (random_.one_in(2)) encoder_.exstop(false);
    const auto state = static_cast<uint8_t>(random_.below(8));
    encoder_.pwre(state, 0, false);
    encoder_.pwrx(state, state, 1);
  }
  if (has.pip && random_.one_in(8)) encoder_.pip(cr3_ = random_.next() & kCr3Mask, false);
  if (random_.one_in(40)) encoder_.stop();
  if (options_.overflow_per_mille != 0 && random_.one_in(40)) {
    encoder_.overflow(false);
    in_transaction_ = false;
    off(GapKind::kOverflow, has_gap_ ? gap_.from : 0);
  }
  if (random_.one_in(20) || encoder_.psb_due()) psb_plus();
  if (random_.percent(30)) on();
}

void SimulatedWalk::on() {
  at_ = random_traced();
  if (std::exchange(in_transaction_, false)) encoder_.mode_tsx(false, false);
  encoder_.mode_exec(program_.mode(at_));
  on_ = true;
  trace_begin();
  mark();
  encoder_.pge(ip());
}

void SimulatedWalk::psb_plus() {
  encoder_.flush();
  if (on_) mark();
  encoder_.psb_plus({on_, ip(), program_.mode(at_), in_transaction_, cr3_, false, vmcs_});
}

}  // namespace auxtrail::decode::testing
