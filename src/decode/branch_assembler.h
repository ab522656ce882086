// BranchAssembler: from blocks and events to branches, gaps and the summary.
//
// Decoders (libipt's and our own) deliver blocks that end at every branch, and events. Where a
// block's last branch led is known only from what comes next: the following block's first address,
// or the address of the event in between. Until then the branch is pending:
//
//   block A ──jcc──►?   next block at B != fall-through   taken to B
//                       next block at the fall-through    not taken
//                       async event at X                  led to X, then the event
//                       disabled event                    led out of the trace (a system call, the
//                       filter's edge)
//                       overflow, error, end             unknown: dropped, unless a packet told it
//
// A `jcc` whose target is its own fall-through counts as not taken: libipt does not tell.
#pragma once

#include <cstdint>
#include <optional>

#include "decode/branch_decoder.h"

namespace auxtrail::decode {

class BranchAssembler {
 public:
  explicit BranchAssembler(FlowConsumer& consumer) : consumer_(consumer) {}

  // The branch that ends a block. `fall_through` is 0 if it is not conditional.
  struct Ending {
    uint64_t from = 0;
    uint64_t fall_through = 0;
    BranchKind kind = BranchKind::kJump;
    uint64_t to = 0;  // if known already, else 0
  };

  void on_block(const Block& block, const std::optional<Ending>& ending) {
    ensure_running(block.first_ip);
    resolve(block.first_ip);
    summary_.instructions += block.instructions;
    ++summary_.blocks;
    last_ip_ = block.last_ip;
    if (wants(kWantsBlocks)) consumer_.on_block(block);
    pending_ = ending;
  }

  // The pending branch led to `ip`.
  void resolve(uint64_t ip) {
    if (!pending_) return;
    const Ending branch = *pending_;
    pending_.reset();
    if (branch.fall_through == ip && branch.kind == BranchKind::kConditional) {
      ++summary_.not_taken;
      if (wants(kWantsNotTaken)) consumer_.on_not_taken(branch.from);
      return;
    }
    emit({branch.from, ip, branch.kind, false});
  }

  // The flow came to `ip` and found no code there.
  void on_unknown_code(uint64_t ip) {
    resolve(ip);
    last_ip_ = ip;
  }

  // A PSB+ that says "tracing is on" comes without an event: the first address met is where it
  // begins.
  void ensure_running(uint64_t ip) {
    if (!running_) begin(ip);
  }

  void begin(uint64_t ip) {
    drop_pending();
    if (gap_) {
      gap_->to_ip = ip;
      add_gap(*gap_);
      gap_.reset();
    }
    running_ = true;
    last_ip_ = ip;
    if (!summary_.first_ip) summary_.first_ip = ip;
    emit({0, ip, BranchKind::kTraceBegin, false});
  }

  // Tracing ended with the instruction that was executed last; `to` is 0 if unknown.
  void leave(uint64_t to, uint64_t offset) {
    if (pending_ && pending_->kind == BranchKind::kConditional && to != 0 &&
        to == pending_->fall_through) {
      resolve(to);
      emit({last_ip_, 0, BranchKind::kTraceEnd, true});
    } else if (pending_) {
      emit({pending_->from, to, pending_->kind, true});
    } else {
      emit({last_ip_, 0, BranchKind::kTraceEnd, true});
    }
    end_run(last_ip_, offset);
  }

  // Tracing was stopped before the instruction at `ip`.
  void stop_at(uint64_t ip, uint64_t offset) {
    ensure_running(ip);
    resolve(ip);
    emit({ip, 0, BranchKind::kTraceEnd, true});
    end_run(ip, offset);
  }

  // An interrupt or the like, from `from` to `to` (0: unknown).
  void interrupt(uint64_t from, uint64_t to) {
    ensure_running(from);
    resolve(from);
    emit({from, to, BranchKind::kAsync, false});
  }

  // Packets were lost; tracing goes on at `ip`, or is off (0).
  void overflow(uint64_t ip, uint64_t offset) {
    ++summary_.overflows;
    drop_pending();
    running_ = false;
    gap_ = Gap{GapKind::kOverflow, last_ip_, 0, offset};
    if (ip != 0) begin(ip);
  }

  void add_error(ErrorCause cause, uint64_t offset) {
    tell_known_pending();
    ++summary_.errors[static_cast<size_t>(cause)];
    consumer_.on_error({cause, offset, last_ip_});
  }

  // Decoding goes on at `offset`; what lies before is lost.
  void skip_to(uint64_t offset) {
    drop_pending();
    if (running_) gap_ = Gap{GapKind::kError, last_ip_, 0, offset};
    running_ = false;
  }

  // Stands for the last instruction before the trace, if that is the rest of a longer one: no
  // address, for it is not canonical.
  static constexpr uint64_t kLastIpBefore = uint64_t{1} << 62 | 1;
  // The trace is the rest of a longer one, in which tracing goes on at `ip`: no branch leads there.
  void continue_at(uint64_t ip) {
    running_ = true;
    last_ip_ = kLastIpBefore;
    if (!summary_.first_ip) summary_.first_ip = ip;
  }
  // A hole that the end of the trace left open.
  [[nodiscard]] const std::optional<Gap>& open_gap() const { return gap_; }

  // The trace is at its end.
  void end() {
    if (!running_) return;
    tell_known_pending();
    summary_.ends_open = true;
    summary_.final_ip = last_ip_;
  }

  [[nodiscard]] bool running() const { return running_; }
  [[nodiscard]] uint64_t last_ip() const { return last_ip_; }
  [[nodiscard]] const DecodeSummary& summary() const { return summary_; }
  DecodeSummary& summary() { return summary_; }

  // The pending branch, if it was taken and led to `ip`; one that was not taken is told now.
  std::optional<Branch> taken_to(uint64_t ip) {
    if (pending_ && pending_->kind == BranchKind::kConditional && pending_->fall_through == ip) {
      resolve(ip);
    }
    if (!pending_) return std::nullopt;
    return Branch{pending_->from, ip, pending_->kind, false};
  }

  // For the fast walk, which delivers branches by itself: the last one that it executed, and
  // whether where it led is still to be told here.
  void walked(uint64_t last_ip, const std::optional<Ending>& pending) {
    last_ip_ = last_ip;
    pending_ = pending;
  }

 private:
  [[nodiscard]] bool wants(unsigned what) const { return (wants_ & what) != 0; }

  void emit(const Branch& branch) {
    if (!branch.is_marker()) ++summary_.branches;
    if (wants(kWantsBranches)) consumer_.on_branch(branch);
  }

  // Where it led is known if a packet told it before the flow broke off.
  void tell_known_pending() {
    if (pending_ && pending_->to != 0) resolve(pending_->to);
  }
  void drop_pending() {
    tell_known_pending();
    pending_.reset();
  }

  void end_run(uint64_t ip, uint64_t offset) {
    pending_.reset();
    running_ = false;
    last_ip_ = ip;
    summary_.final_ip = ip;
    gap_ = Gap{GapKind::kDisabled, ip, 0, offset};
  }

  void add_gap(const Gap& gap) {
    ++summary_.gaps;
    if (wants(kWantsGaps)) consumer_.on_gap(gap);
  }

  FlowConsumer& consumer_;
  unsigned wants_ = consumer_.wants();
  DecodeSummary summary_;
  std::optional<Ending> pending_;
  std::optional<Gap> gap_;
  uint64_t last_ip_ = 0;
  bool running_ = false;
};

}  // namespace auxtrail::decode
