// Fuzzes PacketReader: it must end, stay inside its bytes, and agree with libipt on every packet's
// size.
#include <intel-pt.h>

#include <cstdlib>
#include <memory>

#include "pt/packet_reader.h"

namespace {

using auxtrail::pt::Packet;
using auxtrail::pt::PacketKind;
using auxtrail::pt::PacketReader;
using auxtrail::pt::ReadStatus;

void require(bool condition) {
  if (!condition) std::abort();
}

void compare(ReadStatus status, const Packet& packet, int libipt_status) {
  // Packets newer than libipt are unknown to it, whole or cut short, and block items look like
  // others.
  if (libipt_status == -pte_bad_opc || packet.kind == PacketKind::kBip) return;
  switch (status) {
    case ReadStatus::kPacket:
      require(libipt_status == packet.size_bytes);
      break;
    case ReadStatus::kEnd:
    case ReadStatus::kTruncated:
      require(libipt_status == -pte_eos);
      break;
    case ReadStatus::kBadOpcode:
      require(false);
      break;
    case ReadStatus::kBadPacket:
      require(libipt_status == -pte_bad_packet);
      break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto trace = std::as_bytes(std::span(data, size));
  pt_config config;
  pt_config_init(&config);
  config.begin = const_cast<uint8_t*>(data);
  config.end = config.begin + size;
  const std::unique_ptr<pt_packet_decoder, decltype(&pt_pkt_free_decoder)> libipt(
      pt_pkt_alloc_decoder(&config), &pt_pkt_free_decoder);

  PacketReader reader(trace);
  bool block_seen = false;
  while (reader.offset() < size) {
    const size_t offset = reader.offset();
    Packet packet;
    const auto status = reader.next(packet);
    block_seen |= packet.kind == PacketKind::kBbp;
    if (libipt && !block_seen) {
      pt_packet theirs;
      require(pt_pkt_sync_set(libipt.get(), offset) >= 0);
      compare(status, packet, pt_pkt_next(libipt.get(), &theirs, sizeof(theirs)));
    }
    if (status == ReadStatus::kPacket) {
      require(packet.offset == offset && reader.offset() == offset + packet.size_bytes);
      require(packet.size_bytes > 0 && reader.offset() <= size);
      require(!text(packet).empty());
    } else {
      require(reader.offset() == offset);
      if (!reader.sync_forward()) reader.seek(offset + 1);
      require(reader.offset() >= offset);
      if (reader.offset() == offset) reader.seek(offset + 1);
    }
  }
  return 0;
}
