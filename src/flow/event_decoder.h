// EventDecoder: from packets to events, in the order in which they happened.
//
// Knows all about packets (PSB+, compound events, OVF recovery, errata, time) and nothing about
// code. Behaves as libipt's event decoder does, to the kind and place of every error.
// Thread safety: none; copies are independent (a flow decoder looks ahead with a copy).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "flow/event.h"
#include "flow/status.h"
#include "pt/trace_config.h"

namespace auxtrail::flow {

class EventDecoder {
 public:
  // Borrows `trace`.
  EventDecoder(const pt::TraceConfig& config, std::span<const std::byte> trace);

  // Moves to the next PSB (at or behind the position for the first call, behind the last sync point
  // afterwards) and forgets everything but the configuration. kEndOfTrace if there is none.
  Status sync_forward();
  // Moves to the PSB at `offset`.
  Status sync_set(size_t offset);
  // The offset of the PSB synchronised onto.
  [[nodiscard]] size_t sync_offset() const;

  // The next event. kEndOfTrace at the end. After another error the position is where libipt's
  // would be; call again to go on behind it where libipt's event decoder allows that, or sync.
  Status next(Event& event);

  // Of the packet that will be looked at next (libipt: pt_evt_get_offset).
  [[nodiscard]] size_t offset() const;

  // The newest time of the trace so far; false without a TSC packet.
  bool time(uint64_t& tsc, uint32_t& lost_mtc, uint32_t& lost_cyc) const;
  // Core:bus ratio of the newest CBR packet; false before any.
  bool core_bus_ratio(uint32_t& ratio) const;

  // For the fast path. clean(): no event is pending or half read, tracing is on, no PSB+ is being
  // read: what comes next is the packet at offset(). Then the bytes up to `offset` may be consumed
  // by somebody else, who tells here where he stopped and what the last IP was.
  [[nodiscard]] bool clean() const;
  [[nodiscard]] uint64_t last_ip() const;
  void skip_to(size_t offset, uint64_t last_ip);
};

}  // namespace auxtrail::flow
