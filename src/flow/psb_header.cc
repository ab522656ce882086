// PSB+: the packets from a PSB to its PSBEND (or the OVF in its place) say what is, not what
// became.
//
// Their order tells nothing, so all of them wait for the end, when IP and time are known. The first
// of their events is whether tracing is on.
#include "flow/event_decoder.h"

namespace auxtrail::flow {

EventDecoder::Step EventDecoder::decode_psb() {
  // A compound event never spans a PSB.
  if (!pending_.empty()) return fail(Status::kBadContext);
  ip_ = {};
  enabled_ = false;
  in_block_ = false;
  clock_.psb();

  Event first;
  first.kind = EventKind::kEnabled;
  first.status_update = true;
  add(first, kAtPsbEnd);
  for (;;) {
    fetch();
    if (packet_.kind == pt::PacketKind::kPsbEnd) {
      if (!enabled_) {
        Event* event = pending_.first(kAtPsbEnd);
        event->kind = EventKind::kDisabled;
        event->ip_suppressed = true;
      }
      return Step::kMore;
    }
    if (packet_.kind == pt::PacketKind::kOvf) {
      // The FUP may be among what was lost: without one, whether tracing is on is not known.
      if (!enabled_) pending_.take(kAtPsbEnd, first);
      return Step::kMore;
    }
    if (header_packet() == Step::kFailed) return Step::kFailed;
  }
}

EventDecoder::Step EventDecoder::header_packet() {
  switch (packet_.kind) {
    case pt::PacketKind::kFup:
      return header_fup();
    case pt::PacketKind::kModeExec:
      return header_mode_exec();
    case pt::PacketKind::kModeTsx:
      return header_event(EventKind::kTsx);
    case pt::PacketKind::kPip:
      return header_event(EventKind::kAsyncPaging);
    case pt::PacketKind::kVmcs:
      return header_event(EventKind::kAsyncVmcs);
    case pt::PacketKind::kMnt:
      return header_event(EventKind::kMnt);
    case pt::PacketKind::kTsc:
    case pt::PacketKind::kTma:
    case pt::PacketKind::kMtc:
    case pt::PacketKind::kCyc:
    case pt::PacketKind::kCbr:
      return header_clock();
    case pt::PacketKind::kInvalid:
      return fetch_status_ == Status::kOk ? Step::kMore : fail(fetch_status_);
    default:
      return fail(Status::kBadContext);
  }
}

EventDecoder::Step EventDecoder::header_clock() {
  pt::ClockStatus status = pt::ClockStatus::kOk;
  if (packet_.kind == pt::PacketKind::kTsc) {
    status = clock_.header_tsc(packet_.payload);
  } else if (packet_.kind == pt::PacketKind::kCbr) {
    status = clock_.header_cbr(static_cast<uint8_t>(packet_.payload));
    if (status == pt::ClockStatus::kOk) return header_event(EventKind::kCbr);
  } else {
    return decode_timing();
  }
  return status == pt::ClockStatus::kOk ? Step::kMore : fail(Status::kBadPacket);
}

EventDecoder::Step EventDecoder::header_event(EventKind kind) {
  Event event;
  event.kind = kind;
  event.status_update = kind != EventKind::kMnt;
  switch (kind) {
    case EventKind::kTsx:
      event.flag = (packet_.flags & 1) != 0;
      event.flag2 = (packet_.flags & 2) != 0;
      break;
    case EventKind::kExecMode:
      event.mode = exec_mode_of(packet_.flags);
      break;
    case EventKind::kInterruptFlag:
      event.flag = (packet_.flags & 4) != 0;
      break;
    case EventKind::kCbr:
      event.small = static_cast<uint16_t>(packet_.payload);
      break;
    case EventKind::kAsyncPaging:
      event.flag = (packet_.flags & 1) != 0;
      [[fallthrough]];
    default:
      event.payload = packet_.payload;
      break;
  }
  return add(event, kAtPsbEnd);
}

EventDecoder::Step EventDecoder::header_mode_exec() {
  // The interrupt flag is only kept up to date where its changes are traced.
  const uint8_t compared = interrupt_flag_events_ ? 7 : 3;
  if (mode_exec_known_ && ((mode_exec_ ^ packet_.flags) & compared) != 0) {
    return fail(Status::kBadStatusUpdate);
  }
  if (!mode_exec_known_) mode_exec_ = packet_.flags;
  mode_exec_known_ = true;
  const Step step = header_event(EventKind::kExecMode);
  if (step == Step::kFailed || !interrupt_flag_events_) return step;
  return header_event(EventKind::kInterruptFlag);
}

EventDecoder::Step EventDecoder::header_fup() {
  bool enabled = packet_.ipc != pt::IpCompression::kSuppressed;
  if (errata_.bdm70) {
    bool follows = false;
    const Status status = tip_pge_follows(follows);
    if (status != Status::kOk) return fail(status);
    enabled &= !follows;
  }
  enabled_ = enabled;
  if (enabled) ip_.update(packet_);
  return Step::kMore;
}

// BDM70: tracing is about to be turned on, so it is off, whatever the PSB+ says.
Status EventDecoder::tip_pge_follows(bool& follows) const {
  PacketSource ahead = source_;
  pt::Packet packet;
  for (;;) {
    const Status status = ahead.next(packet);
    if (status != Status::kOk) return status == Status::kEndOfTrace ? Status::kOk : status;
    switch (packet.kind) {
      case pt::PacketKind::kTsc:
      case pt::PacketKind::kCbr:
      case pt::PacketKind::kPsbEnd:
      case pt::PacketKind::kPip:
      case pt::PacketKind::kModeExec:
      case pt::PacketKind::kModeTsx:
      case pt::PacketKind::kVmcs:
      case pt::PacketKind::kTma:
      case pt::PacketKind::kMtc:
      case pt::PacketKind::kCyc:
      case pt::PacketKind::kMnt:
        continue;
      default:
        follows = packet.kind == pt::PacketKind::kTipPge;
        return Status::kOk;
    }
  }
}

EventDecoder::Step EventDecoder::decode_psbend(Event& event) {
  if (!take(kAtPsbEnd, event)) return Step::kMore;
  switch (event.kind) {
    case EventKind::kDisabled:
    case EventKind::kCbr:
    case EventKind::kMnt:
      break;
    default:
      set_ip(event);
      break;
  }
  set_time(event);
  return Step::kEvent;
}

}  // namespace auxtrail::flow
