// EventDecoder: from packets to events, in the order in which they happened.
//
// Knows all about packets (PSB+, compound events, OVF recovery, errata, time) and nothing about
// code. Behaves as libipt's event decoder does, to the kind and place of every error. The few
// differences are deliberate:
//   - MODE.Exec before a TIP.PGD is accepted also where it changes nothing, or the interrupt flag
//     only, as libipt 2.0 did; libipt 2.2 calls that a bad context.
//   - An MWAIT or EVD that waits does not disturb an asynchronous branch (2.2: an internal error).
//   - A PWRE that no PWRX follows is an event before the next packet of the flow, PSB or end.
//   - SKL168 is looked at (2.2 does it in ptdump only), and SKZ84 also behind an OVF.
//   - BBP, BIP and BEP, CFE of the types SWINTR and SYSCALL: libipt 2.2 does not know them.
// There are no kTick events here: they are the flow decoder's, who compares times (as in libipt).
//
// Thread safety: none; copies are independent (a flow decoder looks ahead with a copy). Nothing
// allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "flow/event.h"
#include "flow/last_ip.h"
#include "flow/packet_source.h"
#include "flow/pending_events.h"
#include "flow/status.h"
#include "pt/packet.h"
#include "pt/trace_clock.h"
#include "pt/trace_config.h"

namespace auxtrail::flow {

class EventDecoder {
 public:
  // Borrows `trace`.
  EventDecoder(const pt::TraceConfig& config, std::span<const std::byte> trace);

  // Moves to the next PSB (at or behind the position for the first call, behind the last sync point
  // afterwards), forgets everything but the configuration and reads the PSB+. kEndOfTrace if there
  // is none; another error is one in the PSB+.
  Status sync_forward();
  // Moves to the PSB at `offset`; kNoSync if there is none.
  Status sync_set(size_t offset);
  // The offset of the PSB synchronised onto.
  [[nodiscard]] size_t sync_offset() const { return source_.sync_offset(); }

  // The next event. kEndOfTrace at the end. After another error the position is where libipt's
  // would be: most often before the packet at fault, and a further call fails in the same way; the
  // caller has to sync.
  Status next(Event& event);

  // Of the packet that will be looked at next (libipt: pt_evt_get_offset).
  [[nodiscard]] size_t offset() const { return source_.offset() - packet_.size_bytes; }

  // The newest time of the trace so far; false without a TSC packet.
  bool time(uint64_t& tsc, uint32_t& lost_mtc, uint32_t& lost_cyc) const;
  // Core:bus ratio of the newest CBR packet; false before any.
  bool core_bus_ratio(uint32_t& ratio) const { return clock_.time().core_bus_ratio(ratio); }

  // For the fast path. clean(): no event is pending or half read, tracing is on, no PSB+ is being
  // read: what comes next is the packet at offset(). Then the packets up to `offset` may be
  // consumed by somebody else, who tells here where he stopped and what the last IP was. He may
  // take PAD, TNT, TIP and timing packets: the latter he gives to clock(), except CBR (an event)
  // and a TMA that clock() refuses, which he leaves to next(). Where ticks are wanted the flow
  // decoder wants to see every time, so timing packets are not for the fast path then.
  [[nodiscard]] bool clean() const {
    return enabled_ && pending_.empty() && !bound_ && !stale_event_ && !in_block_ &&
           packet_.kind != pt::PacketKind::kInvalid;
  }
  // Takes leave of a packet that has given all its events, which next() would do first.
  void settle() {
    if (!bound_ || !pending_.empty()) return;
    bound_ = false;
    fetch();
  }
  [[nodiscard]] uint64_t last_ip() const { return ip_.base(); }
  void skip_to(size_t offset, uint64_t last_ip);
  pt::TraceClock& clock() { return clock_; }

 private:
  // What the look at a packet gave.
  enum class Step : uint8_t {
    kEvent,  // an event. The same packet is looked at again, unless the next one was fetched
    kMore,   // nothing; the packet is done
    kFailed  // failure_
  };
  Step fail(Status status) {
    failure_ = status;
    return Step::kFailed;
  }
  // A failure after an event was taken; libipt then takes no further packet.
  Step fail_with_event(Status status) {
    stale_event_ = true;
    return fail(status);
  }

  // The packet is done, and gave this event.
  Step event_done() {
    fetch();
    return Step::kEvent;
  }
  Step standalone(Event& event);
  Step add(const Event& event, unsigned bindings) {
    return pending_.add(event, bindings) ? Step::kMore : fail(Status::kTooManyEvents);
  }
  // Fetches the next packet; an error is kept until somebody looks at the packet.
  void fetch();
  Status start();
  void reset();

  void set_time(Event& event) const;
  // Of the packet seen last, unless the event has no place in the first place.
  void set_ip(Event& event) const {
    if (!event.ip_suppressed) event.ip_suppressed = ip_.query(event.ip) != Status::kOk;
  }
  bool take(unsigned bindings, Event& event);

  // event_decoder.cc
  Step decode_packet(Event& event);
  Step decode_timing();
  Step decode_cbr(Event& event);
  Step decode_tnt(Event& event);
  Step decode_simple(Event& event, EventKind kind);

  // psb_header.cc
  Step decode_psb();
  Step decode_psbend(Event& event);
  Step header_packet();
  Step header_fup();
  Step header_mode_exec();
  Step header_event(EventKind kind);
  Step header_clock();
  [[nodiscard]] Status tip_pge_follows(bool& follows) const;

  // ip_packets.cc
  Step decode_fup(Event& event);
  Step decode_tip(Event& event);
  Step decode_branch(Event& event);
  Step decode_tip_pge(Event& event);
  Step decode_tip_pgd(Event& event);
  Step decode_mode_exec();
  Step decode_mode_tsx(Event& event);
  Step decode_pip(Event& event);
  Step decode_vmcs(Event& event);

  // overflow.cc
  struct Recovery;
  Step decode_ovf(Event& event);
  bool release_at_overflow(Event& event);
  Step plain_overflow(Event& event);
  Step recover_skd010(Event& event);
  Step recover_apl11(Event& event);
  Step recover_apl12(Event& event, size_t fup_end);
  Step recover_at_ip(Event& event, const Recovery& at, const pt::Packet& address);
  Step recover_disabled(Event& event, const Recovery& at);
  Step recover_behind(Event& event, size_t fup_end);

  // platform_packets.cc
  Step decode_exstop(Event& event);
  Step decode_mwait();
  Step decode_pwre(Event& event);
  Step decode_ptw(Event& event);
  Step decode_trig(Event& event);
  Step decode_block(Event& event);
  Step decode_cfe(Event& event);
  Step decode_evd();

  PacketSource source_;
  pt::Packet packet_;  // looked at next, kInvalid if there is none
  pt::TraceClock clock_;
  LastIp ip_;
  PendingEvents pending_;
  pt::Errata errata_;
  bool interrupt_flag_events_ = false;

  Status fetch_status_ = Status::kNoSync;  // why packet_ is none; kOk: it is to be ignored
  Status failure_ = Status::kOk;
  // The last MODE.Exec, if any since the last PSB or OVF that we synchronised onto.
  bool mode_exec_known_ = false;
  uint8_t mode_exec_ = 0;
  bool enabled_ = false;
  // packet_ has released an event: it exists for that, and means nothing more by itself.
  bool bound_ = false;
  bool stale_event_ = false;
  bool in_block_ = false;  // between BBP and BEP
  uint8_t block_type_ = 0;
};

// The mode that MODE.Exec packets with these flags (pt::Packet) tell.
ExecMode exec_mode_of(uint8_t mode_exec_flags);

// Gives a timing packet to `clock`, as one outside of a PSB+. False if it is no timing packet (CBR
// is one). Status: kOk, or what is wrong with it.
bool feed_clock(pt::TraceClock& clock, const pt::Packet& packet, Status& status);

}  // namespace auxtrail::flow
