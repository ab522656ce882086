// OVF: packets were lost, and the question is where tracing goes on.
//
// If tracing was on when the overflow resolved, a FUP follows, with nothing but timing before it.
// If it was off, whatever may come then comes, at last a TIP.PGE. So a look ahead up to the first
// packet that is no timing decides. Some CPUs do not keep to that:
//   SKD010  the FUP is missing: find another packet that tells an address
//   APL11   a TIP.PGD comes first: tracing is off behind it
//   APL12   the FUP comes although tracing is off: later packets show that
// The event has the time of the OVF.
#include "flow/event_decoder.h"

namespace auxtrail::flow {
namespace {

struct FupSearch {
  Status status = Status::kOk;  // kOk: decided
  bool found = false;
  size_t end = 0;  // of the FUP
};

FupSearch find_fup_of_overflow(PacketSource ahead) {
  pt::Packet packet;
  for (;;) {
    const Status status = ahead.next(packet);
    if (status != Status::kOk) return {.status = status};
    switch (packet.kind) {
      case pt::PacketKind::kFup:
        return {.found = true, .end = ahead.offset()};
      case pt::PacketKind::kMnt:
      case pt::PacketKind::kCbr:
      case pt::PacketKind::kTsc:
      case pt::PacketKind::kTma:
      case pt::PacketKind::kMtc:
      case pt::PacketKind::kCyc:
      case pt::PacketKind::kInvalid:
        continue;
      case pt::PacketKind::kPsbEnd:
      case pt::PacketKind::kTip:
      case pt::PacketKind::kTipPgd:
      case pt::PacketKind::kTnt8:
      case pt::PacketKind::kTnt64:
        return {.status = Status::kBadContext};
      default:
        return {};
    }
  }
}

// The FUP of the PSB+ that `ahead` stands in.
Status find_fup_of_header(PacketSource ahead, pt::Packet& packet, bool& found) {
  found = false;
  for (;;) {
    const Status status = ahead.next(packet);
    if (status != Status::kOk) return status;
    switch (packet.kind) {
      case pt::PacketKind::kFup:
        found = true;
        return Status::kOk;
      case pt::PacketKind::kPsbEnd:
      case pt::PacketKind::kOvf:
        return Status::kOk;
      case pt::PacketKind::kModeExec:
      case pt::PacketKind::kModeTsx:
      case pt::PacketKind::kPip:
      case pt::PacketKind::kVmcs:
      case pt::PacketKind::kMnt:
      case pt::PacketKind::kTsc:
      case pt::PacketKind::kCbr:
      case pt::PacketKind::kTma:
      case pt::PacketKind::kMtc:
      case pt::PacketKind::kCyc:
      case pt::PacketKind::kInvalid:
        continue;
      default:
        return Status::kBadContext;
    }
  }
}

}  // namespace

// How far a look ahead got, to go on from there.
struct EventDecoder::Recovery {
  PacketSource source;
  pt::TraceClock clock;
  pt::Packet packet{};
};

EventDecoder::Step EventDecoder::decode_ovf(Event& event) {
  // An OVF may end a PSB+.
  const Step header = decode_psbend(event);
  if (header != Step::kMore) return header;
  if (release_at_overflow(event)) return Step::kEvent;

  reset();
  clock_.overflow();
  const FupSearch search = find_fup_of_overflow(source_);
  if (search.found) {
    if (errata_.apl12) {
      const Step step = recover_apl12(event, search.end);
      if (step != Step::kMore) return step;
    }
    Event overflow;
    overflow.kind = EventKind::kOverflow;
    set_time(overflow);
    return add(overflow, kAtOwnFup);
  }
  if (errata_.skd010) {
    const Step step = recover_skd010(event);
    if (step != Step::kMore) return step;
  }
  if (errata_.apl11 && search.status == Status::kBadContext) {
    const Step step = recover_apl11(event);
    if (step != Step::kMore) return step;
  }
  if (search.status != Status::kOk && search.status != Status::kEndOfTrace) {
    return fail(search.status);
  }
  return plain_overflow(event);
}

// Events whose packets were lost are told nevertheless where no place in the flow belongs to them.
bool EventDecoder::release_at_overflow(Event& event) {
  if (enabled_) return take(kAtPwrx, event);
  while (take(kAtExstop, event) || take(kAtPwrx, event) || take(kAtOwnFup, event)) {
    if (event.kind == EventKind::kNone) continue;
    if (event.kind != EventKind::kPwre) {
      event.ip_suppressed = true;
      set_time(event);
    }
    return true;
  }
  return false;
}

EventDecoder::Step EventDecoder::plain_overflow(Event& event) {
  event = {};
  event.kind = EventKind::kOverflow;
  event.ip_suppressed = true;
  return standalone(event);
}

EventDecoder::Step EventDecoder::recover_at_ip(Event& event, const Recovery& at,
                                               const pt::Packet& address) {
  event = {};
  event.kind = EventKind::kOverflow;
  set_time(event);
  source_ = at.source;
  packet_ = at.packet;
  clock_ = at.clock;
  enabled_ = true;
  ip_.update(address);
  set_ip(event);
  return Step::kEvent;
}

EventDecoder::Step EventDecoder::recover_disabled(Event& event, const Recovery& at) {
  event = {};
  event.kind = EventKind::kOverflow;
  event.ip_suppressed = true;
  set_time(event);
  source_ = at.source;
  clock_ = at.clock;
  return event_done();
}

// If nothing can be done the overflow is taken for one with tracing off; should that be wrong, the
// next packet that needs it on will show it.
EventDecoder::Step EventDecoder::recover_skd010(Event& event) {
  Recovery at{source_, clock_};
  pt::Packet& packet = at.packet;
  bool has_tsx = false;
  Event tsx;
  for (;;) {
    Status status = at.source.next(packet);
    if (status == Status::kEndOfTrace) return Step::kMore;
    if (status != Status::kOk) return fail(status);
    if (feed_clock(at.clock, packet, status)) {
      if (status != Status::kOk) return fail(status);
      continue;
    }
    switch (packet.kind) {
      case pt::PacketKind::kTipPgd:
        return recover_disabled(event, at);
      case pt::PacketKind::kTip: {
        recover_at_ip(event, at, packet);
        return event_done();
      }
      case pt::PacketKind::kFup:
        if (has_tsx && !pending_.add(tsx, kAtOwnFup)) return fail(Status::kTooManyEvents);
        return recover_at_ip(event, at, packet);
      case pt::PacketKind::kPsb: {
        pt::Packet fup;
        bool found = false;
        status = find_fup_of_header(at.source, fup, found);
        if (status == Status::kEndOfTrace) return Step::kMore;
        if (status != Status::kOk) return fail(status);
        return found ? recover_at_ip(event, at, fup) : Step::kMore;
      }
      case pt::PacketKind::kModeTsx:
        // A second one without a FUP: tracing is off indeed.
        if (has_tsx) return Step::kMore;
        has_tsx = true;
        tsx.kind = EventKind::kTsx;
        tsx.flag = (packet.flags & 1) != 0;
        tsx.flag2 = (packet.flags & 2) != 0;
        continue;
      case pt::PacketKind::kPsbEnd:
        return fail(Status::kBadContext);
      case pt::PacketKind::kExstop:
      case pt::PacketKind::kPtw:
      case pt::PacketKind::kCfe:
      case pt::PacketKind::kBep:
        // One of these with a FUP would have to be told from the FUP that is looked for.
        if ((packet.flags & 1) != 0) return Step::kMore;
        continue;
      case pt::PacketKind::kPip:
      case pt::PacketKind::kVmcs:
      case pt::PacketKind::kModeExec:
      case pt::PacketKind::kMnt:
      case pt::PacketKind::kPwre:
      case pt::PacketKind::kPwrx:
      case pt::PacketKind::kEvd:
      case pt::PacketKind::kTrig:
      case pt::PacketKind::kBbp:
      case pt::PacketKind::kBip:
        // Changes among them are lost, as others were in the overflow.
        continue;
      default:
        // TIP.PGE, OVF and TraceStop: all is well. TNT: nobody knows how many bits are to be used
        // before the next address. The rest cannot be skipped.
        return Step::kMore;
    }
  }
}

EventDecoder::Step EventDecoder::recover_apl11(Event& event) {
  Recovery at{source_, clock_};
  for (;;) {
    Status status = at.source.next(at.packet);
    if (status != Status::kOk) return fail(status);
    if (feed_clock(at.clock, at.packet, status)) {
      if (status != Status::kOk) return fail(status);
      continue;
    }
    switch (at.packet.kind) {
      case pt::PacketKind::kTipPgd:
        return recover_disabled(event, at);
      case pt::PacketKind::kMnt:
      case pt::PacketKind::kCfe:
      case pt::PacketKind::kEvd:
      case pt::PacketKind::kTrig:
        continue;
      default:
        return Step::kMore;
    }
  }
}

EventDecoder::Step EventDecoder::recover_apl12(Event& event, size_t fup_end) {
  PacketSource ahead = source_;
  ahead.seek(fup_end);
  pt::Packet packet;
  for (;;) {
    const Status status = ahead.next(packet);
    if (status == Status::kEndOfTrace) return Step::kMore;
    if (status != Status::kOk) return fail(status);
    switch (packet.kind) {
      case pt::PacketKind::kTnt8:
      case pt::PacketKind::kTnt64:
      case pt::PacketKind::kTip:
      case pt::PacketKind::kTipPgd:
      case pt::PacketKind::kPsbEnd:
      case pt::PacketKind::kOvf:
      case pt::PacketKind::kInvalid:
        return Step::kMore;
      case pt::PacketKind::kStop:
      case pt::PacketKind::kTipPge:
        return recover_behind(event, fup_end);
      case pt::PacketKind::kPsb: {
        bool found = false;
        const Status header = find_fup_of_header(ahead, packet, found);
        if (found || header == Status::kEndOfTrace) return Step::kMore;
        return header == Status::kOk ? recover_behind(event, fup_end) : fail(header);
      }
      default:
        continue;
    }
  }
}

EventDecoder::Step EventDecoder::recover_behind(Event& event, size_t fup_end) {
  while (source_.offset() < fup_end) {
    Status status = source_.next(packet_);
    if (status != Status::kOk) return fail(status);
    feed_clock(clock_, packet_, status);
    if (status != Status::kOk) return fail(status);
  }
  return plain_overflow(event);
}

}  // namespace auxtrail::flow
