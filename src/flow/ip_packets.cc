// FUP, TIP, TIP.PGE and TIP.PGD, and the packets that bind to them: MODE, PIP, VMCS.
//
// A packet that releases several events is looked at several times; bound_ says that it released
// one. The branch itself always comes first, since the others hold from its target on.
#include <utility>

#include "flow/event_decoder.h"

namespace auxtrail::flow {
namespace {

// An event that binds like any other, and is then dropped.
constexpr EventKind kIgnored = EventKind::kNone;

}  // namespace

EventDecoder::Step EventDecoder::decode_fup(Event& event) {
  ip_.update(packet_);
  for (;;) {
    if (pending_.first(kAtOwnFup) != nullptr) bound_ = true;
    if (!take(kAtFup | kAtOwnFup, event)) break;
    if (event.kind == kIgnored) continue;
    if (event.kind == EventKind::kOverflow) {
      // It keeps the time of the OVF: how long it lasted shows at the next event.
      enabled_ = true;
    } else {
      set_time(event);
    }
    set_ip(event);
    return Step::kEvent;
  }
  if (bound_) return Step::kMore;

  Event branch;
  branch.kind = EventKind::kAsyncBranch;
  const Status status = ip_.query(branch.at);
  return status == Status::kOk ? add(branch, kAtTip) : fail(status);
}

EventDecoder::Step EventDecoder::decode_tip(Event& event) {
  if (!enabled_) return fail(Status::kBadContext);
  ip_.update(packet_);
  if (!bound_) return decode_branch(event);
  while (take(kAtTip, event)) {
    if (event.kind == kIgnored) continue;
    // Two FUPs wait for one TIP.
    if (event.kind == EventKind::kAsyncBranch) return fail_with_event(Status::kInternal);
    set_ip(event);
    set_time(event);
    return Step::kEvent;
  }
  return Step::kMore;
}

EventDecoder::Step EventDecoder::decode_branch(Event& event) {
  bound_ = true;
  in_block_ = false;
  if (pending_.first(kAtTip, EventKind::kAsyncBranch) != nullptr) {
    take(kAtTip, event);
    if (event.kind != EventKind::kAsyncBranch) {
      std::swap(event, *pending_.first(kAtTip, EventKind::kAsyncBranch));
    }
  } else {
    event = {};
    event.kind = EventKind::kTip;
  }
  set_ip(event);
  set_time(event);
  return Step::kEvent;
}

EventDecoder::Step EventDecoder::decode_tip_pge(Event& event) {
  ip_.update(packet_);
  if (!bound_) {
    event = {};
    event.kind = EventKind::kEnabled;
    enabled_ = true;
    bound_ = true;
    set_ip(event);
    set_time(event);
    return Step::kEvent;
  }
  while (take(kAtTip, event)) {
    if (event.kind == kIgnored) continue;
    if (event.kind != EventKind::kExecMode && event.kind != EventKind::kInterruptFlag) {
      return fail_with_event(Status::kBadContext);
    }
    set_ip(event);
    set_time(event);
    return Step::kEvent;
  }
  return Step::kMore;
}

EventDecoder::Step EventDecoder::decode_tip_pgd(Event& event) {
  ip_.update(packet_);
  while (take(kAtTip, event)) {
    if (event.kind == kIgnored) continue;
    if (event.kind == EventKind::kAsyncBranch) {
      event.kind = EventKind::kAsyncDisabled;
      enabled_ = false;
      bound_ = true;
      set_ip(event);
    } else {
      const bool needs_branch =
          event.kind == EventKind::kAsyncPaging || event.kind == EventKind::kAsyncVmcs;
      if (needs_branch && !bound_) return fail_with_event(Status::kInternal);
      // The target is never reached, at least not while tracing is on.
      event.ip_suppressed = true;
    }
    set_time(event);
    return Step::kEvent;
  }
  if (bound_) return Step::kMore;

  event = {};
  event.kind = EventKind::kDisabled;
  enabled_ = false;
  set_ip(event);
  return standalone(event);
}

EventDecoder::Step EventDecoder::decode_mode_exec() {
  constexpr unsigned kBindings = kAtTip | kAtOwnFup;
  const uint8_t changed = mode_exec_known_ ? mode_exec_ ^ packet_.flags : 7;
  Event event;
  event.kind = kIgnored;
  if ((changed & 3) != 0) {
    event.kind = EventKind::kExecMode;
    event.mode = exec_mode_of(packet_.flags);
    if (!pending_.add(event, kBindings)) return fail(Status::kTooManyEvents);
    mode_exec_ = static_cast<uint8_t>((mode_exec_ & 4) | (packet_.flags & 3));
  }
  if (interrupt_flag_events_ && (changed & 4) != 0) {
    event = {};
    event.kind = EventKind::kInterruptFlag;
    event.flag = (packet_.flags & 4) != 0;
    if (!pending_.add(event, kBindings)) return fail(Status::kTooManyEvents);
    mode_exec_ = static_cast<uint8_t>((mode_exec_ & 3) | (packet_.flags & 4));
  }
  // Also a packet that says nothing new takes its FUP.
  if (event.kind == kIgnored && add(event, kBindings) == Step::kFailed) return Step::kFailed;
  mode_exec_known_ = true;
  return Step::kMore;
}

EventDecoder::Step EventDecoder::decode_mode_tsx(Event& event) {
  Event tsx;
  tsx.kind = EventKind::kTsx;
  tsx.flag = (packet_.flags & 1) != 0;
  tsx.flag2 = (packet_.flags & 2) != 0;
  // An abort is also an asynchronous branch from the same FUP.
  if (enabled_) return add(tsx, tsx.flag2 ? kAtFup : kAtOwnFup);
  event = tsx;
  event.ip_suppressed = true;
  return standalone(event);
}

EventDecoder::Step EventDecoder::decode_pip(Event& event) {
  Event paging;
  paging.kind = EventKind::kPaging;
  paging.payload = packet_.payload;
  paging.flag = (packet_.flags & 1) != 0;
  if (pending_.first(kAtTip, EventKind::kAsyncBranch) != nullptr) {
    paging.kind = EventKind::kAsyncPaging;
    return add(paging, kAtTip);
  }
  event = paging;
  return standalone(event);
}

EventDecoder::Step EventDecoder::decode_vmcs(Event& event) {
  Event vmcs;
  vmcs.kind = EventKind::kAsyncVmcs;
  vmcs.payload = packet_.payload;
  // The VMCS is loaded before the address space.
  if (Event* paging = pending_.first(kAtTip, EventKind::kAsyncPaging); paging != nullptr) {
    const Step step = add(*paging, kAtTip);
    if (step == Step::kMore) *paging = vmcs;
    return step;
  }
  if (pending_.first(kAtTip, EventKind::kAsyncBranch) != nullptr) return add(vmcs, kAtTip);
  event = vmcs;
  event.kind = EventKind::kVmcs;
  return standalone(event);
}

}  // namespace auxtrail::flow
