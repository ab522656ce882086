#include "decode/psb_border.h"

#include "pt/packet_reader.h"
#include "pt/psb_search.h"

namespace auxtrail::decode {
namespace {

// Whether a packet of this kind leaves the flow where it is.
bool is_quiet(pt::PacketKind kind) {
  switch (kind) {
    case pt::PacketKind::kPad:
    case pt::PacketKind::kModeExec:
    case pt::PacketKind::kModeTsx:
    case pt::PacketKind::kPip:
    case pt::PacketKind::kVmcs:
    case pt::PacketKind::kCbr:
    case pt::PacketKind::kTsc:
    case pt::PacketKind::kTma:
    case pt::PacketKind::kMtc:
    case pt::PacketKind::kCyc:
    case pt::PacketKind::kMnt:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::optional<PsbBorder> border_at(std::span<const std::byte> trace, size_t psb) {
  pt::PacketReader reader(trace);
  reader.seek(psb);
  pt::Packet packet;
  if (reader.next(packet) != pt::ReadStatus::kPacket || packet.kind != pt::PacketKind::kPsb) {
    return std::nullopt;
  }
  PsbBorder border{psb, 0, false};
  while (reader.next(packet) == pt::ReadStatus::kPacket) {
    const bool within = border.end == 0;
    if (within && packet.kind == pt::PacketKind::kPsbEnd) {
      border.end = reader.offset();
    } else if (within && packet.kind == pt::PacketKind::kFup) {
      border.tracing = packet.has_ip();
    } else if (!is_quiet(packet.kind)) {
      if (within || packet.kind == pt::PacketKind::kTipPge) return std::nullopt;
      return border;
    }
  }
  return std::nullopt;
}

std::vector<PsbBorder> tracing_borders(std::span<const std::byte> trace, size_t min_bytes) {
  std::vector<PsbBorder> borders;
  size_t from = min_bytes;
  while (from < trace.size()) {
    const auto psb = pt::find_psb(trace, from);
    if (!psb) break;
    const auto border = border_at(trace, *psb);
    from = *psb + pt::kPsbBytes;
    if (!border || !border->tracing) continue;
    borders.push_back(*border);
    from = *psb + min_bytes;
  }
  return borders;
}

}  // namespace auxtrail::decode
