// PacketSource: the packets of a trace as the processor meant them.
//
// Around pt::PacketReader: mends what two errata do to single packets (SKD007, SKZ84), knows the
// PSB last synchronised onto, and speaks in flow::Status. A copy reads on independently.
#pragma once

#include <cstddef>
#include <span>

#include "flow/status.h"
#include "pt/packet.h"
#include "pt/packet_reader.h"
#include "pt/trace_config.h"

namespace auxtrail::flow {

class PacketSource {
 public:
  // Borrows `trace`.
  PacketSource(const pt::Errata& errata, std::span<const std::byte> trace)
      : reader_(trace), trace_(trace), skd007_(errata.skd007), skz84_(errata.skz84) {}

  // The next packet; kEndOfTrace also for one that the trace's end cuts. Without a packet the
  // position stays. What SKZ84 left of a TMA comes as PacketKind::kInvalid.
  Status next(pt::Packet& packet);

  // To the next PSB behind the one synchronised onto, even if a packet before has swallowed its
  // beginning; false, and no move, if there is none.
  bool sync_forward();
  // Makes `offset` the point synchronised onto; false if that is outside of the trace.
  bool sync_set(size_t offset);
  void seek(size_t offset) { reader_.seek(offset); }

  [[nodiscard]] size_t offset() const { return reader_.offset(); }
  [[nodiscard]] size_t sync_offset() const { return sync_offset_; }

 private:
  [[nodiscard]] bool byte_is(size_t offset, uint8_t value) const {
    return offset < trace_.size() && trace_[offset] == std::byte{value};
  }
  void mend_skd007(pt::Packet& packet);
  bool skip_skz84(pt::Packet& packet);

  pt::PacketReader reader_;
  std::span<const std::byte> trace_;
  size_t sync_offset_ = 0;
  bool synced_ = false;
  bool skd007_ = false;
  bool skz84_ = false;
};

}  // namespace auxtrail::flow
