// PacketReader's way for all packets, and what it does besides next().
#include "pt/packet_reader.h"

#include <emmintrin.h>

#include <algorithm>

#include "pt/psb_search.h"

namespace auxtrail::pt {

std::string_view name(ReadStatus status) {
  switch (status) {
    case ReadStatus::kPacket:
      return "packet";
    case ReadStatus::kEnd:
      return "end of trace";
    case ReadStatus::kTruncated:
      return "truncated packet";
    case ReadStatus::kBadOpcode:
      return "unknown packet";
    case ReadStatus::kBadPacket:
      return "bad packet";
  }
  return "unknown status";
}

ReadStatus PacketReader::next_of_any_kind(Packet& packet) {
  if (padding_ == Padding::kSkip) skip_padding();
  if (offset_ >= trace_.size()) return ReadStatus::kEnd;
  packet.offset = offset_;
  const ReadStatus status = parse_packet(trace_.subspan(offset_), context_, packet);
  if (status != ReadStatus::kPacket) return status;

  if (packet.kind == PacketKind::kPsb) last_ip_ = 0;
  if (packet.has_ip()) {
    packet.ip = last_ip_ = shapes::decompress(packet.ipc, packet.payload, last_ip_);
  }
  if (packet.kind == PacketKind::kBbp) {
    context_.block_item_bytes = static_cast<uint8_t>(packet.payload);
    allow_shortcut();
  } else if (context_.block_item_bytes != 0 && !keeps_block(packet.kind)) {
    context_.block_item_bytes = 0;
    allow_shortcut();
  }
  offset_ = packet.offset + packet.size_bytes;
  return ReadStatus::kPacket;
}

bool PacketReader::sync_forward() {
  const auto psb = find_psb(trace_, offset_);
  if (psb) seek(*psb);
  return psb.has_value();
}

bool PacketReader::sync_backward() {
  const auto psb = find_psb_backward(trace_, offset_);
  if (psb) seek(*psb);
  return psb.has_value();
}

void PacketReader::seek(size_t offset) {
  offset_ = std::min(offset, trace_.size());
  last_ip_ = 0;
  context_.block_item_bytes = 0;
  allow_shortcut();
}

std::optional<uint64_t> first_tsc(std::span<const std::byte> trace) {
  PacketReader reader(trace, {}, Padding::kSkip);
  Packet packet;
  while (reader.next(packet) == ReadStatus::kPacket) {
    if (packet.kind == PacketKind::kTsc) return packet.payload;
  }
  return std::nullopt;
}

size_t count_padding(std::span<const std::byte> bytes) {
  constexpr size_t kVectorBytes = 16;
  size_t count = 0;
  for (; bytes.size() - count >= kVectorBytes; count += kVectorBytes) {
    const __m128i vector = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes.data() + count));
    const auto zero =
        static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(vector, _mm_setzero_si128())));
    if (zero != 0xffff) return count + static_cast<size_t>(std::countr_one(zero));
  }
  while (count < bytes.size() && bytes[count] == std::byte{0}) ++count;
  return count;
}

}  // namespace auxtrail::pt
