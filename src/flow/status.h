// How decoding of events and flow ends or fails. The kinds are libipt's, by its own words, so that
// the two decoders can be compared error by error.
#pragma once

#include <cstdint>
#include <string_view>

namespace auxtrail::flow {

enum class Status : uint8_t {
  kOk,
  kEndOfTrace,            // pte_eos: no more packets, or the trace ends inside one
  kNoSync,                // pte_nosync: no PSB was met so far
  kBadOpcode,             // pte_bad_opc: no packet starts like this
  kBadPacket,             // pte_bad_packet: a known packet with an impossible payload
  kBadContext,            // pte_bad_context: a packet where it must not be
  kBadQuery,              // pte_bad_query: packets and code disagree
  kBadStatusUpdate,       // pte_bad_status_update: a PSB+ contradicts what is known
  kNoIp,                  // pte_noip: an address is needed and none is known
  kIpSuppressed,          // pte_ip_suppressed: an address is needed, the packet has none
  kNoMap,                 // pte_nomap: no code is known at the address
  kBadInstruction,        // pte_bad_insn: bytes that are no instruction
  kReturnStackEmpty,      // pte_retstack_empty: a compressed return without a call
  kBadReturnCompression,  // pte_bad_retcomp: a return with a TNT bit of 0
  kNoEnable,              // pte_no_enable: tracing should begin here, and does not
  kEventIgnored,          // pte_event_ignored: an event that nothing in the code answers to
  kOverflow,              // pte_overflow: a counter is full
  kEndlessLoop,           // ours: the code runs in a circle without a packet
  kInternal,              // pte_internal: packets that contradict each other, e.g. FUP FUP TIP
  kTooManyEvents,         // pte_nomem: more packets wait for the one they bind to than ever should
};

// "no memory mapped at this address": libipt's own texts (pt_errstr) where it has the kind.
std::string_view text(Status status);

}  // namespace auxtrail::flow
