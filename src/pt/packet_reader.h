// PacketReader: from bytes to Intel PT packets, one at a time, from any offset.
//
// The layer below decoding: `dump --packets` shows what it yields, nothing here needs the program's
// code. Opcodes and errors agree with libipt's packet decoder (tested against it); a failing packet
// leaves the reader where it is, so the caller decides between skipping a byte and searching the
// next PSB. Hostile bytes are expected: nothing is read outside the span, every call ends.
// Reference: Intel SDM vol. 3, "Intel Processor Trace"; ../shared/docs/pt-decoder-checklist.md
// section 4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

class PacketReader {
 public:
  // Borrows `trace`, which must outlive the reader.
  explicit PacketReader(std::span<const std::byte> trace) : trace_(trace) {}

  // Reads the packet at offset() and moves behind it; without a packet the reader does not move.
  ReadStatus next(Packet& packet);

  // Moves to the next PSB at or behind offset(); false, and no move, if there is none.
  // Forgets the last IP, as a PSB does.
  bool sync_forward();

  // Moves to `offset` (at most the trace's size) and forgets all state.
  void seek(size_t offset);

  [[nodiscard]] size_t offset() const { return offset_; }

 private:
  std::span<const std::byte> trace_;
  size_t offset_ = 0;
  uint64_t last_ip_ = 0;
  // Inside BBP..BEP the bytes of BIP packets look like TNT or others; the bits hold the item size.
  uint8_t block_item_bytes_ = 0;
};

// The payload of the first TSC packet of a trace that begins with a packet; nothing if there is
// none before the end or the first bytes that are no packet.
std::optional<uint64_t> first_tsc(std::span<const std::byte> trace);

}  // namespace auxtrail::pt
