#include "flow/flow_decoder.h"

#include "flow/flow_instruction.h"

namespace auxtrail::flow {
namespace {

// perf's bound: so many branches in a row without a packet, or a bit of one, are no program.
constexpr uint64_t kMaxBlocksWithoutEvent = 100'000;

// The event decoder has no part in ticks: which TNT bit and TIP a time belongs to is known here.
pt::TraceConfig without_ticks(pt::TraceConfig config) {
  config.tick_events = false;
  return config;
}

// Whether it says where the flow went, not what was around it.
bool decides_flow(const Event& event) {
  switch (event.kind) {
    case EventKind::kTnt:
    case EventKind::kTip:
    case EventKind::kEnabled:
    case EventKind::kDisabled:
    case EventKind::kAsyncDisabled:
    case EventKind::kAsyncBranch:
    case EventKind::kOverflow:
      return !event.status_update;
    default:
      return false;
  }
}

ExecMode mode_of_bits(uint8_t bits) {
  switch (bits) {
    case 16:
      return ExecMode::k16;
    case 32:
      return ExecMode::k32;
    case 64:
      return ExecMode::k64;
    default:
      return ExecMode::kUnknown;
  }
}

}  // namespace

FlowDecoder::FlowDecoder(const pt::TraceConfig& config, std::span<const std::byte> trace,
                         const CodeMemory& code)
    : config_(config),
      events_(without_ticks(config), trace),
      code_(&code),
      assumed_mode_(mode_of_bits(config.assumed_mode_bits)) {}

void FlowDecoder::set_code(const CodeMemory& code) {
  code_ = &code;
  section_ = nullptr;
}

void FlowDecoder::begin_at(size_t offset) {
  begin_at_ = offset;
  sync_error_offset_ = 0;
  phase_ = Phase::kSync;
}

bool FlowDecoder::time(uint64_t& tsc) const {
  tsc = tsc_;
  return has_tsc_;
}

bool FlowDecoder::ready() const {
  const bool between = phase_ == Phase::kTrailing || phase_ == Phase::kProceed;
  return between && enabled_ && !has_event_ && !postponed_ && status_ == Status::kOk &&
         !config_.tick_events && events_.clean();
}

void FlowDecoder::moved(uint64_t ip, uint64_t tnt, unsigned tnt_bits) {
  ip_ = ip;
  has_count_ = true;
  count_ = 0;
  blocks_without_event_ = 0;
  block_ = FlowBlock{ip, ip, 0, mode(), speculative_, {}, false};
  behind_block_ = true;
  phase_ = Phase::kTrailing;
  uint32_t lost_mtc = 0;
  uint32_t lost_cyc = 0;
  has_tsc_ = events_.time(tsc_, lost_mtc, lost_cyc);
  moment_ = events_.clock().moment();
  if (tnt_bits == 0) return;
  // The rest of a packet is an event that was fetched already.
  has_event_ = true;
  status_ = Status::kOk;
  event_ = {};
  event_.kind = EventKind::kTnt;
  event_.payload = tnt;
  event_.small = static_cast<uint16_t>(tnt_bits);
  event_.has_tsc = has_tsc_;
  event_.tsc = tsc_;
  event_.cycles = moment_.cycles;
  phase_ = Phase::kProceed;
}

FlowItemKind FlowDecoder::next(FlowItem& item) {
  item.resumed = false;
  while (true) {
    switch (phase_) {
      case Phase::kSync: {
        bool done = false;
        const FlowItemKind kind = synchronize(item, done);
        if (done) return kind;
        break;
      }
      case Phase::kTrailing:
        look_for_trailing();
        break;
      case Phase::kDeliver:
        if (status_ == Status::kOk) return deliver(item);
        failure_ = status_;
        phase_ = Phase::kFail;
        break;
      case Phase::kProceed:
        if (build_block(item)) return FlowItemKind::kBlock;
        break;
      case Phase::kFail:
        return report(item);
      case Phase::kResync:
        if (resync(item)) return FlowItemKind::kEvent;
        break;
      case Phase::kEnd:
        return FlowItemKind::kEnd;
    }
  }
}

void FlowDecoder::reset() {
  ip_ = 0;
  mode_ = ExecMode::kUnknown;
  enabled_ = speculative_ = false;
  has_event_ = resyncing_ = resynced_at_held_ = false;
  status_ = Status::kNoSync;
  returns_.clear();
  clear_postponed();
  block_ = {};
  behind_block_ = false;
  blocks_without_event_ = 0;
  has_tsc_ = has_count_ = false;
  tsc_ = 0;
  count_ = 0;
}

// Begins at the next PSB. `done`: there is an item to deliver.
FlowItemKind FlowDecoder::synchronize(FlowItem& item, bool& done) {
  reset();
  Status status = Status::kNoSync;
  if (begin_at_) status = events_.sync_set(*begin_at_);
  if (!begin_at_ || status == Status::kNoSync) status = events_.sync_forward();
  begin_at_.reset();
  if (status == Status::kEndOfTrace) {
    phase_ = Phase::kEnd;
    return FlowItemKind::kEnd;
  }
  if (status == Status::kOk) status = start();
  moment_ = events_.clock().moment();
  if (status == Status::kOk) return FlowItemKind::kEnd;
  done = true;
  fill_error(item, status, FlowStage::kSync);
  // Every attempt must lead further.
  if (events_.offset() <= sync_error_offset_) phase_ = Phase::kEnd;
  sync_error_offset_ = events_.offset();
  return FlowItemKind::kError;
}

// Whether tracing is on, and where, must be known before the PSB+ delivers its first event.
Status FlowDecoder::start() {
  EventDecoder ahead = events_;
  const size_t begin = events_.offset();
  while (ahead.offset() == begin) {
    Event event;
    const Status status = ahead.next(event);
    if (status == Status::kEndOfTrace) break;
    if (status != Status::kOk) return status;
    if (!event.status_update) break;
    if (event.kind != EventKind::kEnabled) continue;
    enabled_ = true;
    ip_ = event.ip;
    break;
  }
  status_ = Status::kOk;
  phase_ = Phase::kTrailing;
  return Status::kOk;
}

void FlowDecoder::fetch() {
  status_ = events_.next(event_);
  has_event_ = status_ == Status::kOk;
}

// The held event is over and done with.
void FlowDecoder::consume() {
  has_event_ = false;
  resynced_at_held_ = false;
  blocks_without_event_ = 0;
  has_tsc_ = event_.has_tsc;
  tsc_ = event_.tsc;
  if (decides_flow(event_)) moment_ = {event_.tsc, event_.cycles, event_.has_tsc};
  set_anchor(event_);
  events_.settle();
}

// A TRIG packet counts instructions from the newest packet that told a place.
void FlowDecoder::set_anchor(const Event& event) {
  switch (event.kind) {
    case EventKind::kDisabled:
    case EventKind::kAsyncDisabled:
      has_count_ = false;
      break;
    case EventKind::kOverflow:
      has_count_ = !event.ip_suppressed;
      break;
    case EventKind::kPaging:
    case EventKind::kSipi:
    case EventKind::kCbr:
    case EventKind::kMnt:
    case EventKind::kStop:
    case EventKind::kVmcs:
    case EventKind::kMwait:
    case EventKind::kPwre:
    case EventKind::kPwrx:
      return;
    default:
      if (event.ip_suppressed) return;
      has_count_ = true;
      break;
  }
  count_ = 0;
}

void FlowDecoder::fail_in(Step step) {
  if (step == Step::kFailed) phase_ = Phase::kFail;
}

void FlowDecoder::look_for_trailing() {
  const Step step = trailing_event();
  if (step == Step::kReached) {
    phase_ = Phase::kDeliver;
  } else if (status_ == Status::kEndOfTrace) {
    phase_ = Phase::kEnd;
  } else {
    phase_ = Phase::kProceed;
  }
  fail_in(step);
}

FlowItemKind FlowDecoder::deliver(FlowItem& item) {
  item.offset = events_.offset();
  if (event_.kind == EventKind::kTnt) {
    // The time of its first bit; the others are still to come.
    item.event = event_;
    item.event.kind = EventKind::kTick;
    item.event.payload = 0;
    item.event.small = 0;
    item.event.ip = ip_;
    has_tsc_ = true;
    tsc_ = event_.tsc;
    if (event_.small == 0) consume();
  } else {
    const Status status = apply_event(item);
    if (status != Status::kOk) {
      failure_ = status;
      (void)report(item);
      consume();  // it will not fit any better later
      return FlowItemKind::kError;
    }
    item.event = event_;
    consume();
  }
  behind_block_ = false;
  phase_ = resyncing_ ? Phase::kResync : Phase::kTrailing;
  return FlowItemKind::kEvent;
}

// The next block. False if it is empty, for the flow stands where the event happened, or failed.
bool FlowDecoder::build_block(FlowItem& item) {
  if (!has_event_ && status_ == Status::kOk) fetch();
  if (status_ == Status::kEndOfTrace) {
    phase_ = Phase::kEnd;
    return false;
  }
  block_ = FlowBlock{ip_, ip_, 0, mode(), speculative_, {}, false};
  block_is_full_ = false;
  if (status_ != Status::kOk) {
    phase_ = Phase::kDeliver;
    return false;
  }
  Step step = Step::kReached;
  if (event_.kind != EventKind::kTnt && event_.kind != EventKind::kTip) {
    step = proceed_to_event();
    phase_ = step == Step::kReached ? Phase::kDeliver : Phase::kProceed;
  } else if (!enabled_) {
    step = fail(Status::kNoEnable);
  } else {
    step = proceed_freely();
    block_.was_led = step == Step::kReached;
    phase_ = Phase::kTrailing;
    behind_block_ = true;
  }
  fail_in(step);
  if (block_.instructions == 0) return false;
  blocks_without_event_ = block_.was_led ? 0 : blocks_without_event_ + 1;
  if (blocks_without_event_ > kMaxBlocksWithoutEvent) fail_in(fail(Status::kEndlessLoop));
  item.block = block_;
  return true;
}

void FlowDecoder::fill_error(FlowItem& item, Status status, FlowStage stage) const {
  item.error = status;
  item.stage = stage;
  item.offset = events_.offset();
  item.lost_sync = true;
  item.ip = ip_;
}

FlowItemKind FlowDecoder::report(FlowItem& item) {
  fill_error(item, failure_, resyncing_ ? FlowStage::kResync : FlowStage::kFlow);
  // A packet that could not be read hides all that follow up to a PSB.
  item.lost_sync = status_ != Status::kOk || !resyncs_;
  phase_ = item.lost_sync ? Phase::kSync : Phase::kResync;
  return FlowItemKind::kError;
}

void FlowDecoder::retry() {
  const bool is_code = failure_ == Status::kNoMap || failure_ == Status::kBadInstruction;
  const bool has_failed = phase_ == Phase::kResync || phase_ == Phase::kSync;
  if (!is_code || !has_failed || resyncing_ || status_ != Status::kOk) return;
  phase_ = Phase::kProceed;
}

}  // namespace auxtrail::flow
