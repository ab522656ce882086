// PacketSource: the packets of a trace that mean something to the event decoder.
//
// Around pt::PacketReader: knows the PSB last synchronised onto, and speaks in flow::Status. A copy
// reads on independently.
#pragma once

#include <algorithm>
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
      : reader_(trace, errata, pt::Padding::kSkip), size_(trace.size()) {}

  // The next packet that is no PAD; kEndOfTrace also for one that the trace's end cuts. Without a
  // packet the position stays, but behind the padding.
  Status next(pt::Packet& packet) {
    const pt::ReadStatus status = reader_.next(packet);
    return status == pt::ReadStatus::kPacket ? Status::kOk : status_of(status);
  }

  // To the next PSB behind the one synchronised onto, even if a packet before has swallowed its
  // beginning; false, and no move, if there is none.
  bool sync_forward() {
    size_t from = reader_.offset();
    if (synced_ && from == sync_offset_) from += kPsbBytes;
    pt::PacketReader ahead = reader_;
    ahead.seek(from - std::min(from, kPsbBytes - 1));
    if (!ahead.sync_forward()) return false;
    reader_ = ahead;
    sync_offset_ = reader_.offset();
    synced_ = true;
    return true;
  }
  // Makes `offset` the point synchronised onto; false if that is outside of the trace.
  bool sync_set(size_t offset) {
    if (offset > size_) return false;
    reader_.seek(offset);
    sync_offset_ = offset;
    synced_ = true;
    return true;
  }
  void seek(size_t offset) { reader_.seek(offset); }

  [[nodiscard]] size_t offset() const { return reader_.offset(); }
  [[nodiscard]] size_t sync_offset() const { return sync_offset_; }

 private:
  static constexpr size_t kPsbBytes = 16;

  static Status status_of(pt::ReadStatus status) {
    if (status == pt::ReadStatus::kBadOpcode) return Status::kBadOpcode;
    return status == pt::ReadStatus::kBadPacket ? Status::kBadPacket : Status::kEndOfTrace;
  }

  pt::PacketReader reader_;
  size_t size_ = 0;
  size_t sync_offset_ = 0;
  bool synced_ = false;
};

}  // namespace auxtrail::flow
