// What happens around the flow: power states, PTWRITE, triggers, PEBS blocks, and event trace.
//
// An IP bit says that a FUP follows for this packet alone. Event trace (CFE, with EVD before it for
// more data): without that bit the event shares the FUP of the asynchronous branch it explains, if
// tracing is on and the type has such a branch, else it stands alone.
#include <array>

#include "flow/event_decoder.h"

namespace auxtrail::flow {
namespace {

Event event_of(EventKind kind) {
  Event event;
  event.kind = kind;
  return event;
}

struct CfeRule {
  EventKind kind = EventKind::kNone;
  bool has_vector = false;
  bool shares_fup = false;  // an asynchronous branch goes with it
  bool no_ip = false;       // happens where no address means anything
};

// By the packet's type.
constexpr std::array<CfeRule, 16> kCfeRules = {{
    {},
    {EventKind::kInterrupt, true, true},
    {EventKind::kIret},
    {EventKind::kSmi, false, true},
    {EventKind::kRsm, false, true, true},
    {EventKind::kSipi, true, true, true},
    {EventKind::kInit, false, true},
    {EventKind::kVmentry},
    {EventKind::kVmexit, false, true},
    {EventKind::kVmexit, true, true},  // because of an interrupt
    {EventKind::kShutdown},
    {},
    {EventKind::kUintr, true, true},
    {EventKind::kUiret},
    {EventKind::kSwintr, true, true},
    {EventKind::kSyscall, false, true},
}};

enum EvdType : uint32_t { kCr2 = 0, kVmxQualification = 1, kVmxReason = 2 };

}  // namespace

EventDecoder::Step EventDecoder::decode_exstop(Event& event) {
  const bool has_ip = (packet_.flags & 1) != 0;
  // An MWAIT happened where execution stops.
  if (Event mwait; take(kAtExstop, mwait)) {
    if (!has_ip) {
      event = mwait;
      event.ip_suppressed = true;
      set_time(event);
      return Step::kEvent;
    }
    if (!pending_.add(mwait, kAtOwnFup)) return fail(Status::kTooManyEvents);
  }
  if (has_ip) return add(event_of(EventKind::kExstop), kAtOwnFup);
  event = event_of(EventKind::kExstop);
  event.ip_suppressed = true;
  return standalone(event);
}

EventDecoder::Step EventDecoder::decode_mwait() {
  Event mwait = event_of(EventKind::kMwait);
  mwait.payload = packet_.payload;
  mwait.payload2 = packet_.extra;
  return add(mwait, kAtExstop);
}

// The MWAIT that leads into the state, and the EXSTOP, are told before it, though an EXSTOP's
// packet comes behind. The time is the PWRE's own.
EventDecoder::Step EventDecoder::decode_pwre(Event& event) {
  if (take(kAtPwrx, event)) return Step::kEvent;
  Event pwre = event_of(EventKind::kPwre);
  pwre.small = static_cast<uint16_t>(packet_.payload);
  pwre.small2 = static_cast<uint16_t>(packet_.extra);
  pwre.flag = (packet_.flags & 1) != 0;
  set_time(pwre);
  return add(pwre, kAtPwrx);
}

EventDecoder::Step EventDecoder::decode_ptw(Event& event) {
  Event ptwrite = event_of(EventKind::kPtwrite);
  ptwrite.payload = packet_.payload;
  ptwrite.small = static_cast<uint16_t>(packet_.extra);
  if ((packet_.flags & 1) != 0) return add(ptwrite, kAtOwnFup);
  event = ptwrite;
  event.ip_suppressed = true;
  return standalone(event);
}

EventDecoder::Step EventDecoder::decode_trig(Event& event) {
  const bool has_ip = (packet_.flags & 1) != 0;
  const bool has_count = (packet_.flags & 4) != 0;
  Event trigger = event_of(EventKind::kTrigger);
  trigger.small = static_cast<uint16_t>(packet_.payload);
  trigger.flag = has_count;
  trigger.flag2 = (packet_.flags & 2) != 0;
  if (has_ip) {
    // The FUP is the place itself, so the count must be there, and be 0.
    if (!has_count || packet_.extra != 0) return fail(Status::kBadPacket);
    return add(trigger, kAtOwnFup);
  }
  // Without tracing there is no instruction to count from.
  if (has_count && packet_.extra != 0 && !enabled_) return fail_with_event(Status::kBadPacket);
  event = trigger;
  if (has_count) event.payload = packet_.extra;
  event.ip_suppressed = !has_count;
  return standalone(event);
}

EventDecoder::Step EventDecoder::decode_block(Event& event) {
  if (packet_.kind == pt::PacketKind::kBbp) {
    in_block_ = true;
    block_type_ = static_cast<uint8_t>(packet_.extra);
    return Step::kMore;
  }
  const bool item = packet_.kind == pt::PacketKind::kBip;
  Event part = event_of(item ? EventKind::kBlockItem : EventKind::kBlockEnd);
  part.small = block_type_;
  if (item) {
    part.small2 = static_cast<uint16_t>(packet_.extra);
    part.payload = packet_.payload;
  } else {
    in_block_ = false;
    if ((packet_.flags & 1) != 0) return add(part, kAtOwnFup);
  }
  event = part;
  event.ip_suppressed = true;
  return standalone(event);
}

EventDecoder::Step EventDecoder::decode_cfe(Event& event) {
  Event cfe;
  const bool had_data = take(kAtCfe, cfe);
  const CfeRule rule = packet_.extra < kCfeRules.size() ? kCfeRules[packet_.extra] : CfeRule{};
  const bool has_ip = (packet_.flags & 1) != 0;
  if (rule.kind == EventKind::kNone) {
    if (had_data) return fail(Status::kInternal);
    // Of an unknown type; its FUP still has to be told from others.
    return has_ip ? add(cfe, kAtOwnFup) : Step::kMore;
  }
  if (had_data && cfe.kind != rule.kind) return fail(Status::kBadContext);
  if (has_ip && rule.no_ip) return fail(Status::kBadPacket);

  cfe.kind = rule.kind;
  cfe.ip_suppressed = rule.no_ip;
  if (rule.has_vector) {
    cfe.small = static_cast<uint16_t>(packet_.payload);
    if (rule.kind == EventKind::kVmexit) cfe.flag = true;
  }
  if (has_ip) return add(cfe, kAtOwnFup);
  if (rule.shares_fup && enabled_) return add(cfe, kAtFup);
  event = cfe;
  event.ip_suppressed = true;
  return standalone(event);
}

EventDecoder::Step EventDecoder::decode_evd() {
  const uint32_t type = packet_.extra;
  if (type > kVmxReason) return Step::kMore;
  Event* waiting = pending_.first(kAtCfe);
  if (type == kCr2) {
    if (waiting != nullptr) return fail(Status::kBadContext);
    Event interrupt = event_of(EventKind::kInterrupt);
    interrupt.flag = true;
    interrupt.payload = packet_.payload;
    return add(interrupt, kAtCfe);
  }
  if (waiting == nullptr) {
    if (!pending_.add(event_of(EventKind::kVmexit), kAtCfe)) return fail(Status::kTooManyEvents);
    waiting = pending_.first(kAtCfe);
  }
  if (waiting->kind != EventKind::kVmexit) return fail(Status::kBadContext);
  bool& has_it = type == kVmxReason ? waiting->flag2 : waiting->flag3;
  if (has_it) return fail(Status::kBadContext);
  has_it = true;
  (type == kVmxReason ? waiting->payload : waiting->payload2) = packet_.payload;
  return Step::kMore;
}

}  // namespace auxtrail::flow
