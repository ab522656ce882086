// Errata of single packets, and where to synchronise.
#include "flow/packet_source.h"

#include <algorithm>

namespace auxtrail::flow {
namespace {

constexpr size_t kPsbBytes = 16;
constexpr uint8_t kExtension = 0x02;
constexpr uint8_t kOvf = 0xf3;
constexpr uint8_t kTma = 0x73;
constexpr uint8_t kOvfBytes = 2;
constexpr uint8_t kSkz84Bytes = 8;  // one more than a TMA

Status status_of(pt::ReadStatus status) {
  switch (status) {
    case pt::ReadStatus::kPacket:
      return Status::kOk;
    case pt::ReadStatus::kEnd:
    case pt::ReadStatus::kTruncated:
      return Status::kEndOfTrace;
    case pt::ReadStatus::kBadOpcode:
      return Status::kBadOpcode;
    case pt::ReadStatus::kBadPacket:
      return Status::kBadPacket;
  }
  return Status::kBadOpcode;
}

}  // namespace

Status PacketSource::next(pt::Packet& packet) {
  const pt::ReadStatus status = reader_.next(packet);
  if (status == pt::ReadStatus::kPacket) {
    if (skd007_ && packet.kind == pt::PacketKind::kCyc) mend_skd007(packet);
    return Status::kOk;
  }
  if (skz84_ && status == pt::ReadStatus::kBadPacket && skip_skz84(packet)) return Status::kOk;
  return status_of(status);
}

// The first byte of a two byte CYC stands before an OVF, whose first byte became the CYC's second
// one. Two CYCs in a row occur only when a counter wraps, and then they are long.
void PacketSource::mend_skd007(pt::Packet& packet) {
  const size_t ovf = packet.offset + 1;
  if (packet.size_bytes != 2 || !byte_is(ovf, kExtension) || !byte_is(ovf + 1, kOvf)) return;
  packet = {};
  packet.kind = pt::PacketKind::kOvf;
  packet.size_bytes = kOvfBytes;
  packet.offset = ovf;
  reader_.seek(ovf + kOvfBytes);
}

bool PacketSource::skip_skz84(pt::Packet& packet) {
  const size_t offset = reader_.offset();
  if (!byte_is(offset, kExtension) || !byte_is(offset + 1, kTma)) return false;
  packet = {};
  packet.kind = pt::PacketKind::kInvalid;
  packet.size_bytes = kSkz84Bytes;
  packet.offset = offset;
  reader_.seek(offset + kSkz84Bytes);
  return true;
}

bool PacketSource::sync_forward() {
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

bool PacketSource::sync_set(size_t offset) {
  if (offset > trace_.size()) return false;
  reader_.seek(offset);
  sync_offset_ = offset;
  synced_ = true;
  return true;
}

}  // namespace auxtrail::flow
