// FlowDecoder: what an event changes in the state of the flow.
#include "flow/flow_decoder.h"

namespace auxtrail::flow {

Status FlowDecoder::apply_event(FlowItem& item) {
  const Event& event = event_;
  switch (event.kind) {
    case EventKind::kEnabled:
      item.resumed = event.ip == ip_;
      if (event.status_update) return enabled_ ? Status::kOk : Status::kBadStatusUpdate;
      if (event.ip_suppressed) return Status::kNoIp;
      if (enabled_) return Status::kBadContext;
      ip_ = event.ip;
      enabled_ = true;
      return Status::kOk;
    case EventKind::kDisabled:
    case EventKind::kAsyncDisabled:
      if (event.status_update) return enabled_ ? Status::kBadStatusUpdate : Status::kOk;
      if (!enabled_) return Status::kBadContext;
      // ip_ stays: where tracing may be taken up again.
      enabled_ = false;
      count_ = 0;
      return Status::kOk;
    case EventKind::kAsyncBranch:
      if (event.status_update || !enabled_) return Status::kBadContext;
      ip_ = event.ip;
      return Status::kOk;
    default:
      return apply_context(event);
  }
}

Status FlowDecoder::apply_context(const Event& event) {
  switch (event.kind) {
    case EventKind::kOverflow:
      if (event.status_update) return Status::kBadContext;
      enabled_ = !event.ip_suppressed;
      ip_ = enabled_ ? event.ip : 0;
      // The execution mode is taken to be what it was.
      speculative_ = false;
      return Status::kOk;
    case EventKind::kExecMode: {
      const bool contradicts =
          event.status_update && enabled_ && mode_ != ExecMode::kUnknown && mode_ != event.mode;
      mode_ = event.mode;
      return contradicts ? Status::kBadStatusUpdate : Status::kOk;
    }
    case EventKind::kTsx:
      speculative_ = event.flag;
      return Status::kOk;
    case EventKind::kStop:
      return event.status_update || enabled_ ? Status::kBadContext : Status::kOk;
    default:
      return Status::kOk;
  }
}

}  // namespace auxtrail::flow
