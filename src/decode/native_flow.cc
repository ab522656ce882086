// Turning the flow decoder's items into branches, and taking turns with the walk.
#include "decode/native_flow.h"

#include <algorithm>

#include "decode/branch_insn.h"
#include "pt/packet_reader.h"

namespace auxtrail::decode {
namespace {

ErrorCause cause_of(flow::Status status) {
  using flow::Status;
  switch (status) {
    case Status::kNoMap:
      return ErrorCause::kNoMap;
    case Status::kBadInstruction:
      return ErrorCause::kBadInstruction;
    case Status::kBadQuery:
    case Status::kBadStatusUpdate:
    case Status::kNoEnable:
      return ErrorCause::kMismatch;
    case Status::kReturnStackEmpty:
    case Status::kBadReturnCompression:
      return ErrorCause::kBadReturn;
    case Status::kBadOpcode:
      return ErrorCause::kBadOpcode;
    case Status::kBadPacket:
      return ErrorCause::kBadPacket;
    case Status::kEndOfTrace:
      return ErrorCause::kTruncated;
    case Status::kNoSync:
      return ErrorCause::kNoPsb;
    case Status::kBadContext:
    case Status::kNoIp:
    case Status::kIpSuppressed:
      return ErrorCause::kBadContext;
    case Status::kEndlessLoop:
      return ErrorCause::kLoop;
    default:
      return ErrorCause::kInternal;
  }
}

uint8_t mode_bits_of(flow::ExecMode mode) {
  switch (mode) {
    case flow::ExecMode::k64:
      return 1;
    case flow::ExecMode::k32:
      return 2;
    default:
      return 0;
  }
}

}  // namespace

NativeFlow::NativeFlow(const pt::TraceConfig& config, std::span<const std::byte> trace,
                       FlowPrograms& programs, FlowCode& code, FlowConsumer& consumer,
                       const Piece& piece)
    : config_(config),
      trace_(trace),
      piece_(piece),
      programs_(programs),
      code_(code),
      consumer_(consumer),
      assembler_(consumer),
      program_(programs.get(code.first())) {
  flow_.emplace(config_, trace_, *program_.memory);
  assembler_.summary().bytes = trace.size();
  walk_options_.compressed_returns = config.return_compression;
  walk_options_.stops_at_tsc = code.changes();
  wants_times_ = (consumer.wants() & kWantsTimes) != 0;
  walk_options_.clock = &flow_->events().clock();
  walk_options_.tells_time = code.changes() || wants_times_;
}

void NativeFlow::go_on(std::span<const std::byte> trace, const Piece& piece) {
  const flow::ReturnStack stack = flow_->return_stack();
  assembler_.summary().bytes = piece.offset + trace.size();  // the PSB+ is in both pieces
  const uint64_t cycles = flow_->events().clock().moment().cycles;
  trace_ = trace;
  piece_ = piece;
  flow_.emplace(config_, trace_, *program_.memory);
  flow_->return_stack() = stack;
  flow_->events().clock().count_from(cycles);
  walk_options_.clock = &flow_->events().clock();
  futile_offset_ = std::numeric_limits<size_t>::max();
}

bool NativeFlow::step() {
  follow_time();
  if (program_.walker != nullptr && flow_->ready() && walk()) return true;
  flow::FlowItem item;
  const flow::FlowItemKind kind = flow_->next(item);
  if (wants_times_) assembler_.set_time(flow_->moment());
  switch (kind) {
    case flow::FlowItemKind::kBlock:
      on_block(item.block);
      return true;
    case flow::FlowItemKind::kEvent:
      on_event(item);
      return true;
    case flow::FlowItemKind::kError:
      on_error(item);
      return true;
    case flow::FlowItemKind::kEnd:
      break;
  }
  tell_missing_psb();
  if (!flow_->tracing()) return false;
  if (piece_.goes_on) {
    assembler_.resolve(flow_->ip());
  } else {
    // The flow decoder reads no packet that the trace's end cuts.
    if (flow_->offset() < trace_.size()) {
      assembler_.add_error(ErrorCause::kTruncated, flow_->offset() + piece_.offset);
    }
    assembler_.end();
  }
  return false;
}

// The flow decoder is silent about a trace that it can't begin in.
void NativeFlow::tell_missing_psb() {
  const DecodeSummary& sum = assembler_.summary();
  if (piece_.offset != 0 || sum.first_ip || sum.error_count() != 0) return;
  if (!pt::PacketReader(trace_).sync_forward()) assembler_.add_error(ErrorCause::kNoPsb, 0);
}

std::optional<uint64_t> NativeFlow::now() const {
  uint64_t tsc = 0;
  return flow_->time(tsc) ? std::optional(tsc) : std::nullopt;
}

bool NativeFlow::walk() {
  if (config_.errata.bdm64 && flow_->speculative()) return false;  // it must see every block there
  if (flow_->mode() == flow::ExecMode::kUnknown) return false;     // there is no graph for that
  WalkState state;
  state.offset = flow_->offset();
  state.ip = flow_->ip();
  if (state.offset == futile_offset_ && state.ip == futile_ip_) return false;
  if (state.offset >= trace_.size()) return false;
  const auto opcode = std::to_integer<uint8_t>(trace_[state.offset]);
  if (kPacketClasses[opcode] == PacketClass::kOther) return false;
  state.last_ip = flow_->events().last_ip();
  // The branch that led here is told only when it is sure that something is executed behind it.
  if (!assembler_.running()) return false;
  WalkDelivery delivery{consumer_, piece_.offset, assembler_.taken_to(state.ip)};
  const std::optional<Branch> before = delivery.before;
  if (wants_times_) {
    delivery.time_before = assembler_.pending_time();
    delivery.now = assembler_.time();
  }
  state.executed_ip = assembler_.last_ip();
  walk_options_.mode_bits = mode_bits_of(flow_->mode());
  // Hints are of one mode's graph.
  if (flow_->mode() != walked_mode_) flow_->return_stack().forget_hints();
  walked_mode_ = flow_->mode();
  const bool went = program_.walker->run(flow_->mode(), trace_, walk_options_,
                                         flow_->return_stack(), state, delivery);
  futile_offset_ = state.offset;
  futile_ip_ = state.ip;
  if (!went) return false;
  const WalkTotals& totals = delivery.totals;
  DecodeSummary& summary = assembler_.summary();
  summary.instructions += totals.instructions;
  summary.branches += totals.taken;
  summary.not_taken += totals.not_taken;
  summary.blocks += totals.taken + totals.not_taken + (delivery.last ? 1 : 0);
  summary.gaps += totals.gaps;
  if (state.left_ip != 0) summary.final_ip = state.left_ip;
  if (before && !delivery.before) ++summary.branches;  // the walk told it
  if (delivery.before && totals.instructions != 0) assembler_.resolve(delivery.before->to);
  flow_->events().skip_to(state.offset, state.last_ip);
  flow_->moved(state.ip, state.tnt, state.tnt_bits);
  if (wants_times_) flow_->set_moment(delivery.now);
  if (totals.instructions != 0) {
    std::optional<BranchAssembler::Ending> pending;
    if (const auto& last = delivery.last) {
      pending = BranchAssembler::Ending{last->from, 0, last->kind, state.ip, last->length};
    }
    assembler_.walked(state.executed_ip, pending, flow_->moment());
  }
  return true;
}

void NativeFlow::on_block(const flow::FlowBlock& block) {
  take_up(block.first_ip);
  std::optional<BranchAssembler::Ending> ending;
  const auto kind = branch_kind(block.last);
  if (kind) {
    const bool conditional = *kind == BranchKind::kConditional;
    const uint8_t length = block.last.length;
    ending = {block.last_ip, conditional ? block.last_ip + length : 0, *kind,
              block.was_led ? flow_->ip() : 0, length};
  }
  assembler_.on_block({block.first_ip, block.last_ip, block.instructions}, ending);
}

// The first address of a piece whose flow began before it.
void NativeFlow::take_up(uint64_t ip) {
  if (piece_.continues) assembler_.continue_at(ip);
  piece_.continues = false;
}

void NativeFlow::on_event(const flow::FlowItem& item) {
  using flow::EventKind;
  const flow::Event& event = item.event;
  const uint64_t ip = event.ip_suppressed ? 0 : event.ip;
  // A PSB+ tells where the flow is: the branch that led there was executed.
  if (event.status_update && flow_->tracing()) assembler_.resolve(flow_->ip());
  switch (event.kind) {
    case EventKind::kEnabled:
      if (event.status_update) take_up(event.ip);
      if (!event.status_update || !assembler_.running()) assembler_.begin(event.ip);
      break;
    case EventKind::kDisabled:
      if (!event.status_update) assembler_.leave(ip, item.offset + piece_.offset);
      break;
    case EventKind::kAsyncDisabled:
      take_up(event.at);
      assembler_.stop_at(event.at, item.offset + piece_.offset);
      break;
    case EventKind::kAsyncBranch:
      take_up(event.at);
      assembler_.interrupt(event.at, ip);
      break;
    case EventKind::kOverflow:
      assembler_.overflow(ip, item.offset + piece_.offset);
      break;
    default:
      break;
  }
}

void NativeFlow::on_error(const flow::FlowItem& item) {
  const bool lacks_code =
      item.error == flow::Status::kNoMap || item.error == flow::Status::kBadInstruction;
  if (item.error == flow::Status::kNoMap && show_later_code(item.ip)) {
    flow_->retry();
    return;
  }
  // The address that the flow went to is known even if no code is.
  if (lacks_code && item.ip != 0) assembler_.on_unknown_code(item.ip);
  assembler_.add_error(cause_of(item.error), item.offset + piece_.offset);
  // Wherever the flow goes on: what the packets in between say is lost.
  assembler_.skip_to(item.offset + piece_.offset);
}

void NativeFlow::show(const image::CodeMap& code) {
  const FlowPrograms::Program program = programs_.get(code);
  if (program.memory == program_.memory) return;
  program_ = program;
  flow_->set_code(*program_.memory);
  flow_->return_stack().forget_hints();  // they are another graph's
}

// The code as it was when the flow came here.
void NativeFlow::follow_time() {
  if (!code_.changes()) return;
  uint64_t tsc = 0;
  const image::CodeMap* code = flow_->time(tsc) ? code_.at(tsc) : nullptr;
  if (code != nullptr) show(*code);
}

// Times are in the trace now and then only: code at `ip` may have come before the next of them.
bool NativeFlow::show_later_code(uint64_t ip) {
  if (!code_.changes()) return false;
  const auto rest = trace_.subspan(std::min(flow_->offset(), trace_.size()));
  const uint64_t next = pt::first_tsc(rest).value_or(std::numeric_limits<uint64_t>::max());
  const image::CodeMap* code = code_.later(ip, next);
  if (code == nullptr) return false;
  show(*code);
  return true;
}

}  // namespace auxtrail::decode
