// The event decoder's frame: fetching packets, synchronising, and the packets that stand alone.
#include "flow/event_decoder.h"

namespace auxtrail::flow {
namespace {

Status status_of(pt::ClockStatus status) {
  switch (status) {
    case pt::ClockStatus::kOk:
    case pt::ClockStatus::kImprecise:
      return Status::kOk;
    case pt::ClockStatus::kBadPacket:
      return Status::kBadPacket;
    case pt::ClockStatus::kBadContext:
      return Status::kBadContext;
  }
  return Status::kOk;
}

}  // namespace

ExecMode exec_mode_of(uint8_t mode_exec_flags) {
  constexpr std::array<ExecMode, 4> kModes = {ExecMode::k16, ExecMode::k64, ExecMode::k32,
                                              ExecMode::kUnknown};
  return kModes[mode_exec_flags & 3];
}

bool feed_clock(pt::TraceClock& clock, const pt::Packet& packet, Status& status) {
  status = Status::kOk;
  switch (packet.kind) {
    case pt::PacketKind::kTsc:
      clock.tsc(packet.payload);
      return true;
    case pt::PacketKind::kMtc:
      clock.mtc(static_cast<uint8_t>(packet.payload));
      return true;
    case pt::PacketKind::kCyc:
      clock.cyc(packet.payload);
      return true;
    case pt::PacketKind::kTma:
      status = status_of(
          clock.tma(static_cast<uint16_t>(packet.payload), static_cast<uint16_t>(packet.extra)));
      return true;
    case pt::PacketKind::kCbr:
      status = status_of(clock.cbr(static_cast<uint8_t>(packet.payload)));
      return true;
    default:
      return false;
  }
}

EventDecoder::EventDecoder(const pt::TraceConfig& config, std::span<const std::byte> trace)
    : source_(config.errata, trace),
      clock_(config),
      errata_(config.errata),
      interrupt_flag_events_(config.interrupt_flag_events),
      status_events_(config.status_events) {
  packet_.kind = pt::PacketKind::kInvalid;
}

void EventDecoder::reset() {
  packet_.kind = pt::PacketKind::kInvalid;
  fetch_status_ = Status::kNoSync;
  ip_ = {};
  pending_.clear();
  enabled_ = false;
  bound_ = false;
  stale_event_ = false;
  mode_exec_known_ = false;
  in_block_ = false;
}

Status EventDecoder::sync_forward() {
  reset();
  clock_.reset();
  if (!source_.sync_forward()) return Status::kEndOfTrace;
  return start();
}

Status EventDecoder::sync_set(size_t offset) {
  reset();
  clock_.reset();
  if (!source_.sync_set(offset)) return Status::kEndOfTrace;
  return start();
}

Status EventDecoder::start() {
  fetch_status_ = Status::kOk;
  fetch();
  if (packet_.kind == pt::PacketKind::kInvalid) return fetch_status_;
  if (packet_.kind != pt::PacketKind::kPsb) return Status::kNoSync;
  return decode_psb() == Step::kFailed ? failure_ : Status::kOk;
}

void EventDecoder::fetch() {
  const Status status = source_.next(packet_);
  if (status != Status::kOk) {
    packet_.kind = pt::PacketKind::kInvalid;
    packet_.size_bytes = 0;
  }
  fetch_status_ = status;
}

void EventDecoder::skip_to(size_t offset, uint64_t last_ip) {
  source_.seek(offset);
  ip_.set(last_ip);
  fetch();
}

bool EventDecoder::time(uint64_t& tsc, uint32_t& lost_mtc, uint32_t& lost_cyc) const {
  pt::ElapsedTime::Reading reading;
  const bool known = clock_.time().read(reading);
  tsc = reading.tsc;
  lost_mtc = reading.lost_mtc;
  lost_cyc = reading.lost_cyc;
  return known;
}

void EventDecoder::set_time(Event& event) const {
  event.has_tsc = time(event.tsc, event.lost_mtc, event.lost_cyc);
  event.cycles = clock_.moment().cycles;
}

bool EventDecoder::take(unsigned bindings, Event& event) { return pending_.take(bindings, event); }

EventDecoder::Step EventDecoder::standalone(Event& event) {
  set_time(event);
  return event_done();
}

Status EventDecoder::next(Event& event) {
  for (;;) {
    const Step step = decode_packet(event);
    if (step == Step::kEvent) {
      stale_event_ = false;
      return Status::kOk;
    }
    if (step == Step::kFailed) return failure_;
    if (stale_event_) return Status::kInternal;
    bound_ = false;
    fetch();
  }
}

namespace {

// Packets that a PWRE is told before: its PWRX, or one that does not come while a core sleeps.
bool ends_sleep(pt::PacketKind kind) {
  switch (kind) {
    case pt::PacketKind::kPwrx:
    case pt::PacketKind::kPsb:
    case pt::PacketKind::kTnt8:
    case pt::PacketKind::kTnt64:
    case pt::PacketKind::kTip:
    case pt::PacketKind::kTipPge:
    case pt::PacketKind::kTipPgd:
      return true;
    default:
      return false;
  }
}

}  // namespace

EventDecoder::Step EventDecoder::decode_packet(Event& event) {
  const bool at_end = packet_.kind == pt::PacketKind::kInvalid && fetch_status_ != Status::kOk;
  if ((at_end || ends_sleep(packet_.kind)) && take(kAtPwrx, event)) return Step::kEvent;
  if (packet_.kind == pt::PacketKind::kPsb) {
    if (decode_psb() == Step::kFailed) return Step::kFailed;
  }
  switch (packet_.kind) {
    case pt::PacketKind::kTnt8:
    case pt::PacketKind::kTnt64:
      return decode_tnt(event);
    case pt::PacketKind::kTip:
      return decode_tip(event);
    case pt::PacketKind::kFup:
      return decode_fup(event);
    case pt::PacketKind::kTipPge:
      return decode_tip_pge(event);
    case pt::PacketKind::kTipPgd:
      return decode_tip_pgd(event);
    case pt::PacketKind::kTsc:
    case pt::PacketKind::kTma:
    case pt::PacketKind::kMtc:
    case pt::PacketKind::kCyc:
      return decode_timing();
    case pt::PacketKind::kCbr:
      return decode_cbr(event);
    case pt::PacketKind::kModeExec:
      return decode_mode_exec();
    case pt::PacketKind::kModeTsx:
      return decode_mode_tsx(event);
    case pt::PacketKind::kPip:
      return decode_pip(event);
    case pt::PacketKind::kVmcs:
      return decode_vmcs(event);
    case pt::PacketKind::kPsbEnd:
      return decode_psbend(event);
    case pt::PacketKind::kOvf:
      return decode_ovf(event);
    case pt::PacketKind::kStop:
      return decode_simple(event, EventKind::kStop);
    case pt::PacketKind::kMnt:
      return decode_simple(event, EventKind::kMnt);
    case pt::PacketKind::kPwre:
      return decode_pwre(event);
    case pt::PacketKind::kPwrx:
      return decode_simple(event, EventKind::kPwrx);
    case pt::PacketKind::kExstop:
      return decode_exstop(event);
    case pt::PacketKind::kMwait:
      return decode_mwait();
    case pt::PacketKind::kPtw:
      return decode_ptw(event);
    case pt::PacketKind::kTrig:
      return decode_trig(event);
    case pt::PacketKind::kCfe:
      return decode_cfe(event);
    case pt::PacketKind::kEvd:
      return decode_evd();
    case pt::PacketKind::kBbp:
    case pt::PacketKind::kBip:
    case pt::PacketKind::kBep:
      return decode_block(event);
    case pt::PacketKind::kInvalid:
      return fetch_status_ == Status::kOk ? Step::kMore : fail(fetch_status_);
    default:
      return fail(Status::kBadOpcode);
  }
}

EventDecoder::Step EventDecoder::decode_tnt(Event& event) {
  if (!enabled_) return fail(Status::kBadContext);
  in_block_ = false;
  event = {};
  event.kind = EventKind::kTnt;
  event.payload = packet_.payload;
  event.small = packet_.tnt_bits;
  return standalone(event);
}

EventDecoder::Step EventDecoder::decode_timing() {
  Status status = Status::kOk;
  feed_clock(clock_, packet_, status);
  return status == Status::kOk ? Step::kMore : fail(status);
}

EventDecoder::Step EventDecoder::decode_cbr(Event& event) {
  Status status = Status::kOk;
  feed_clock(clock_, packet_, status);
  if (status != Status::kOk) return fail(status);
  event = {};
  event.kind = EventKind::kCbr;
  event.small = static_cast<uint16_t>(packet_.payload);
  return standalone(event);
}

// Packets that are an event each, without a place.
EventDecoder::Step EventDecoder::decode_simple(Event& event, EventKind kind) {
  event = {};
  event.kind = kind;
  if (kind == EventKind::kMnt) {
    event.payload = packet_.payload;
  } else if (kind != EventKind::kStop) {
    event.small = static_cast<uint16_t>(packet_.payload);
    event.small2 = static_cast<uint16_t>(packet_.extra);
    event.flag = (packet_.flags & 1) != 0;
    event.flag2 = (packet_.flags & 2) != 0;
    event.flag3 = (packet_.flags & 4) != 0;
  }
  return standalone(event);
}

}  // namespace auxtrail::flow
