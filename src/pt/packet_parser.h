// One packet out of its bytes: every kind, every error. PacketReader calls it for all that its own
// short cut leaves aside.
//
// Opcodes, sizes and errors are libipt's (kind and place; the tests compare). Two things go beyond
// it: the packets of PEBS blocks (BBP, BIP, BEP), which libipt has not, after perf's rules; and the
// hardware flag of PWRE. Reference: Intel SDM vol. 3, "Intel Processor Trace", "Trace Packets and
// Data Types".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "pt/packet.h"

namespace auxtrail::pt {

enum class ReadStatus : uint8_t {
  kPacket,     // a packet was read
  kEnd,        // no bytes are left
  kTruncated,  // the bytes end inside a packet (libipt: eos)
  kBadOpcode,  // no packet starts like this
  kBadPacket,  // reserved bits or an impossible payload
};

std::string_view name(ReadStatus status);

// What the meaning of the bytes depends on.
struct ParseContext {
  uint8_t block_item_bytes = 0;  // inside BBP..BEP: the size of an item's value, else 0
  bool skd007 = false;           // as in pt::Errata
  bool skz84 = false;
};

// The packet at the front of `bytes`, which are not empty. `packet` comes in fresh, with its offset
// set, and is meaningful only if the result is kPacket; its offset grows if an erratum swallowed
// bytes before it. Does not decompress addresses.
ReadStatus parse_packet(std::span<const std::byte> bytes, const ParseContext& context,
                        Packet& packet);

// Packets that may stand between BBP and BEP without ending the block.
bool keeps_block(PacketKind kind);

}  // namespace auxtrail::pt
