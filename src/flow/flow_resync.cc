// FlowDecoder: going on after an error of the flow (missing code, packets that do not fit it).
//
// The packets themselves are fine, so the flow is taken up at the next event that tells where it
// was: TIP, TIP.PGE, a FUP's, a PSB+. What happened before that place is delivered where it belongs
// to no place, else at once; TNT bits are lost. Errors of the packets can only be survived at
// the next PSB. Reference: pt_blk_resync(3) of libipt 2.2.
#include "flow/flow_decoder.h"

namespace auxtrail::flow {

void FlowDecoder::begin_resync() {
  resyncing_ = true;
  was_enabled_ = enabled_;
  enabled_ = false;
  behind_block_ = false;
  has_count_ = false;
  returns_.clear();
  clear_postponed();
}

void FlowDecoder::resync_at(uint64_t ip) {
  ip_ = ip;
  enabled_ = true;
  resyncing_ = false;
  blocks_without_event_ = 0;
  resynced_at_held_ = true;
  phase_ = Phase::kTrailing;
}

// One event further. True if `item` is to be delivered.
bool FlowDecoder::resync(FlowItem& item) {
  if (!resyncing_) begin_resync();
  // An event that led to an error again right after it was resynchronised at is skipped.
  if (has_event_ && resynced_at_held_) consume();
  if (!has_event_ && status_ == Status::kOk) fetch();
  if (status_ != Status::kOk) {
    phase_ = status_ == Status::kEndOfTrace ? Phase::kEnd : Phase::kDeliver;
    return false;
  }
  if (event_.kind == EventKind::kEnabled && !event_.status_update && was_enabled_) {
    // Where tracing was switched off was lost with the flow.
    was_enabled_ = false;
    item.event = Event{};
    item.event.kind = EventKind::kDisabled;
    item.event.ip_suppressed = true;
    item.offset = events_.offset();
    return true;
  }
  if (!resync_at_event()) phase_ = Phase::kDeliver;
  return false;
}

// Whether the flow is to go on without the held event's being delivered right now.
bool FlowDecoder::resync_at_event() {
  switch (event_.kind) {
    case EventKind::kTnt:
      consume();
      return true;
    case EventKind::kTip:
      if (!event_.ip_suppressed) resync_at(event_.ip);
      consume();
      return true;
    case EventKind::kEnabled:
      if (event_.status_update) resync_at(event_.ip);
      resyncing_ = false;
      return false;
    case EventKind::kOverflow:
      resyncing_ = false;
      return false;
    case EventKind::kDisabled:
      resyncing_ = false;
      enabled_ = !event_.status_update;
      ip_ = 0;
      return false;
    case EventKind::kAsyncDisabled:
    case EventKind::kAsyncBranch:
      resync_at(event_.at);
      return true;
    case EventKind::kExecMode:
      mode_ = ExecMode::kUnknown;
      break;
    default:
      break;
  }
  // Without its own address, or with one that does not say where the flow was.
  const bool counts = event_.kind == EventKind::kTrigger && event_.ip == 0;
  if (event_.ip_suppressed || counts || event_.ip == 0) return false;
  resync_at(event_.ip);
  return true;
}

}  // namespace auxtrail::flow
