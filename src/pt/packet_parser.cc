// The opcode tables of the packet parser: one small function per packet shape.
#include "pt/packet_parser.h"

#include <algorithm>
#include <array>
#include <bit>

namespace auxtrail::pt {
namespace {

constexpr size_t kPsbBytes = 16;
constexpr size_t kTnt64Bytes = 8;
constexpr uint8_t kExtension = 0x02;
constexpr uint8_t kExtension2 = 0xc3;
constexpr uint8_t kMntOpcode = 0x88;
constexpr uint8_t kOverflow = 0xf3;
constexpr uint8_t kTma = 0x73;
constexpr size_t kCorruptTmaBytes = 8;  // SKZ84: one more than a TMA's

// A parser's view of the rest of the trace; it is given only if byte 0 exists.
using Bytes = std::span<const std::byte>;

uint8_t byte_at(Bytes bytes, size_t index) { return std::to_integer<uint8_t>(bytes[index]); }

uint64_t little_endian(Bytes bytes, size_t first, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; ++i) {
    value |= uint64_t{byte_at(bytes, first + i)} << (8 * i);
  }
  return value;
}

ReadStatus finish(Packet& packet, PacketKind kind, size_t size_bytes) {
  packet.kind = kind;
  packet.size_bytes = static_cast<uint8_t>(size_bytes);
  return ReadStatus::kPacket;
}

ReadStatus read_psb(Bytes bytes, Packet& packet) {
  if (bytes.size() < kPsbBytes) return ReadStatus::kTruncated;
  for (size_t i = 0; i < kPsbBytes; i += 2) {
    if (byte_at(bytes, i) != 0x02 || byte_at(bytes, i + 1) != 0x82) return ReadStatus::kBadPacket;
  }
  return finish(packet, PacketKind::kPsb, kPsbBytes);
}

// The payload's highest set bit is the stop bit; the bits below it are branches.
ReadStatus read_tnt(uint64_t payload, PacketKind kind, size_t size_bytes, Packet& packet) {
  if (payload < 2) return ReadStatus::kBadPacket;
  packet.tnt_bits = static_cast<uint8_t>(std::bit_width(payload) - 1);
  packet.payload = payload & ~(uint64_t{1} << packet.tnt_bits);
  return finish(packet, kind, size_bytes);
}

ReadStatus read_tnt64(Bytes bytes, Packet& packet) {
  if (bytes.size() < kTnt64Bytes) return ReadStatus::kTruncated;
  return read_tnt(little_endian(bytes, 2, 6), PacketKind::kTnt64, kTnt64Bytes, packet);
}

ReadStatus read_ip(Bytes bytes, PacketKind kind, Packet& packet) {
  constexpr std::array<int, 8> kPayloadBytes = {0, 2, 4, 6, 6, -1, 8, -1};
  const unsigned ipc = byte_at(bytes, 0) >> 5;
  if (kPayloadBytes[ipc] < 0) return ReadStatus::kBadPacket;
  const auto count = static_cast<size_t>(kPayloadBytes[ipc]);
  if (bytes.size() < 1 + count) return ReadStatus::kTruncated;
  packet.ipc = static_cast<IpCompression>(ipc);
  packet.payload = little_endian(bytes, 1, count);
  return finish(packet, kind, 1 + count);
}

ReadStatus read_mode(Bytes bytes, Packet& packet) {
  if (bytes.size() < 2) return ReadStatus::kTruncated;
  const uint8_t payload = byte_at(bytes, 1);
  packet.payload = payload;
  switch (payload >> 5) {
    case 0:
      packet.flags = payload & 7;
      return finish(packet, PacketKind::kModeExec, 2);
    case 1:
      packet.flags = payload & 3;
      return finish(packet, PacketKind::kModeTsx, 2);
    default:
      return ReadStatus::kBadPacket;
  }
}

// `offset_bytes` of opcode, then `payload_bytes` of number: the commonest shape.
ReadStatus read_number(Bytes bytes, PacketKind kind, size_t offset_bytes, size_t payload_bytes,
                       Packet& packet) {
  if (bytes.size() < offset_bytes + payload_bytes) return ReadStatus::kTruncated;
  packet.payload = little_endian(bytes, offset_bytes, payload_bytes);
  return finish(packet, kind, offset_bytes + payload_bytes);
}

ReadStatus read_tma(Bytes bytes, Packet& packet) {
  if (bytes.size() < 7) return ReadStatus::kTruncated;
  const auto fast_counter = static_cast<uint32_t>(little_endian(bytes, 5, 2));
  if (fast_counter > 0x1ff || byte_at(bytes, 4) != 0) return ReadStatus::kBadPacket;
  packet.payload = little_endian(bytes, 2, 2);
  packet.extra = fast_counter;
  return finish(packet, PacketKind::kTma, 7);
}

// 5 bits in the first byte, 7 in each further one; "more follows" is bit 2 there, bit 0 here.
ReadStatus read_cyc(Bytes bytes, Packet& packet) {
  uint64_t value = byte_at(bytes, 0) >> 3;
  bool more = (byte_at(bytes, 0) & 4) != 0;
  size_t size_bytes = 1;
  unsigned shift = 5;
  while (more) {
    if (size_bytes == bytes.size()) return ReadStatus::kTruncated;
    const uint8_t next = byte_at(bytes, size_bytes++);
    if (shift + 7 > 64) return ReadStatus::kBadPacket;
    value |= static_cast<uint64_t>(next >> 1) << shift;
    shift += 7;
    more = (next & 1) != 0;
  }
  packet.payload = value;
  return finish(packet, PacketKind::kCyc, size_bytes);
}

ReadStatus read_pip(Bytes bytes, Packet& packet) {
  const auto status = read_number(bytes, PacketKind::kPip, 2, 6, packet);
  packet.flags = packet.payload & 1;
  packet.payload = packet.payload >> 1 << 5;
  return status;
}

ReadStatus read_vmcs(Bytes bytes, Packet& packet) {
  const auto status = read_number(bytes, PacketKind::kVmcs, 2, 5, packet);
  packet.payload <<= 12;
  return status;
}

ReadStatus read_cbr(Bytes bytes, Packet& packet) {
  const auto status = read_number(bytes, PacketKind::kCbr, 2, 2, packet);
  packet.payload &= 0xff;  // the fourth byte is reserved
  return status;
}

ReadStatus read_mnt(Bytes bytes, Packet& packet) {
  if (bytes.size() < 3) return ReadStatus::kTruncated;
  if (byte_at(bytes, 2) != kMntOpcode) return ReadStatus::kBadOpcode;
  return read_number(bytes, PacketKind::kMnt, 3, 8, packet);
}

ReadStatus read_mwait(Bytes bytes, Packet& packet) {
  if (bytes.size() < 10) return ReadStatus::kTruncated;
  packet.payload = little_endian(bytes, 2, 4);
  packet.extra = static_cast<uint32_t>(little_endian(bytes, 6, 4));
  return finish(packet, PacketKind::kMwait, 10);
}

ReadStatus read_pwre(Bytes bytes, Packet& packet) {
  if (bytes.size() < 4) return ReadStatus::kTruncated;
  const uint8_t states = byte_at(bytes, 3);
  // SDM and perf have the hardware flag in bit 7, libipt in bit 3, which is reserved.
  packet.flags = (byte_at(bytes, 2) & 0x88) != 0 ? 1 : 0;
  packet.payload = states >> 4;
  packet.extra = states & 0xf;
  return finish(packet, PacketKind::kPwre, 4);
}

ReadStatus read_pwrx(Bytes bytes, Packet& packet) {
  if (bytes.size() < 7) return ReadStatus::kTruncated;
  const uint8_t states = byte_at(bytes, 2);
  const uint8_t reason = byte_at(bytes, 3);
  packet.payload = states >> 4;
  packet.extra = states & 0xf;
  packet.flags = static_cast<uint8_t>((reason & 1) | (reason >> 1 & 6));
  return finish(packet, PacketKind::kPwrx, 7);
}

ReadStatus read_ptw(Bytes bytes, Packet& packet) {
  const uint8_t opcode = byte_at(bytes, 1);
  const unsigned size_code = opcode >> 5 & 3;
  if (size_code > 1) return ReadStatus::kBadPacket;
  packet.flags = opcode >> 7;
  packet.extra = size_code == 0 ? 4 : 8;
  return read_number(bytes, PacketKind::kPtw, 2, packet.extra, packet);
}

ReadStatus read_cfe(Bytes bytes, Packet& packet) {
  if (bytes.size() < 4) return ReadStatus::kTruncated;
  packet.extra = byte_at(bytes, 2) & 0x1f;
  packet.flags = byte_at(bytes, 2) >> 7;
  packet.payload = byte_at(bytes, 3);
  return finish(packet, PacketKind::kCfe, 4);
}

ReadStatus read_evd(Bytes bytes, Packet& packet) {
  const auto status = read_number(bytes, PacketKind::kEvd, 3, 8, packet);
  if (status == ReadStatus::kPacket) packet.extra = byte_at(bytes, 2) & 0x3f;
  return status;
}

ReadStatus read_bbp(Bytes bytes, Packet& packet) {
  if (bytes.size() < 3) return ReadStatus::kTruncated;
  packet.payload = (byte_at(bytes, 2) & 0x80) != 0 ? 4 : 8;  // the size of the items that follow
  packet.extra = byte_at(bytes, 2) & 0x1f;
  return finish(packet, PacketKind::kBbp, 3);
}

ReadStatus read_bip(Bytes bytes, size_t item_bytes, Packet& packet) {
  packet.extra = byte_at(bytes, 0) >> 3;
  return read_number(bytes, PacketKind::kBip, 1, item_bytes, packet);
}

ReadStatus read_trig(Bytes bytes, Packet& packet) {
  if (bytes.size() < 3) return ReadStatus::kTruncated;
  const uint8_t header = byte_at(bytes, 1);
  const bool counts = (header & 0x40) != 0;
  if (counts && bytes.size() < 5) return ReadStatus::kTruncated;
  packet.payload = byte_at(bytes, 2);
  packet.extra = counts ? static_cast<uint32_t>(little_endian(bytes, 3, 2)) : 0;
  packet.flags = static_cast<uint8_t>(header >> 7 | (header >> 4 & 2) | (counts ? 4 : 0));
  return finish(packet, PacketKind::kTrig, counts ? 5 : 3);
}

ReadStatus read_flagged(Bytes bytes, PacketKind kind, Packet& packet) {
  packet.flags = byte_at(bytes, 1) >> 7;
  return finish(packet, kind, 2);
}

ReadStatus read_extended(Bytes bytes, Packet& packet) {
  if (bytes.size() < 2) return ReadStatus::kTruncated;
  const uint8_t opcode = byte_at(bytes, 1);
  switch (opcode) {
    case 0x03:
      return read_cbr(bytes, packet);
    case 0x13:
      return read_cfe(bytes, packet);
    case 0x22:
      return read_pwre(bytes, packet);
    case 0x23:
      return finish(packet, PacketKind::kPsbEnd, 2);
    case 0x33:
    case 0xb3:
      return read_flagged(bytes, PacketKind::kBep, packet);
    case 0x43:
      return read_pip(bytes, packet);
    case 0x53:
      return read_evd(bytes, packet);
    case 0x62:
    case 0xe2:
      return read_flagged(bytes, PacketKind::kExstop, packet);
    case 0x63:
      return read_bbp(bytes, packet);
    case kTma:
      return read_tma(bytes, packet);
    case 0x82:
      return read_psb(bytes, packet);
    case 0x83:
      return finish(packet, PacketKind::kStop, 2);
    case 0xa2:
      return read_pwrx(bytes, packet);
    case 0xa3:
      return read_tnt64(bytes, packet);
    case 0xc2:
      return read_mwait(bytes, packet);
    case kExtension2:
      return read_mnt(bytes, packet);
    case 0xc8:
      return read_vmcs(bytes, packet);
    case kOverflow:
      return finish(packet, PacketKind::kOvf, 2);
    default:
      break;
  }
  return (opcode & 0x1f) == 0x12 ? read_ptw(bytes, packet) : ReadStatus::kBadOpcode;
}

ReadStatus read_packet(Bytes bytes, Packet& packet) {
  const uint8_t opcode = byte_at(bytes, 0);
  switch (opcode) {
    case 0x00:
      return finish(packet, PacketKind::kPad, 1);
    case kExtension:
      return read_extended(bytes, packet);
    case 0x19:
      return read_number(bytes, PacketKind::kTsc, 1, 7, packet);
    case 0x59:
      return read_number(bytes, PacketKind::kMtc, 1, 1, packet);
    case 0x99:
      return read_mode(bytes, packet);
    case 0xd9:
      return read_trig(bytes, packet);
    default:
      break;
  }
  if ((opcode & 1) == 0) return read_tnt(opcode >> 1, PacketKind::kTnt8, 1, packet);
  if ((opcode & 3) == 3) return read_cyc(bytes, packet);
  switch (opcode & 0x1f) {
    case 0x01:
      return read_ip(bytes, PacketKind::kTipPgd, packet);
    case 0x0d:
      return read_ip(bytes, PacketKind::kTip, packet);
    case 0x11:
      return read_ip(bytes, PacketKind::kTipPge, packet);
    case 0x1d:
      return read_ip(bytes, PacketKind::kFup, packet);
    default:
      return ReadStatus::kBadOpcode;
  }
}

// SKD007: a CYC packet of two bytes whose second is really the first of an OVF packet.
bool is_swallowed_overflow(Bytes bytes, const Packet& packet) {
  return packet.kind == PacketKind::kCyc && packet.size_bytes == 2 && bytes.size() > 2 &&
         byte_at(bytes, 1) == kExtension && byte_at(bytes, 2) == kOverflow;
}

bool is_tma(Bytes bytes) {
  return bytes.size() > 1 && byte_at(bytes, 0) == kExtension && byte_at(bytes, 1) == kTma;
}

}  // namespace

ReadStatus parse_packet(std::span<const std::byte> bytes, const ParseContext& context,
                        Packet& packet) {
  if (context.block_item_bytes != 0 && (byte_at(bytes, 0) & 7) == 4) {
    return read_bip(bytes, context.block_item_bytes, packet);
  }
  const ReadStatus status = read_packet(bytes, packet);
  if (context.skd007 && status == ReadStatus::kPacket && is_swallowed_overflow(bytes, packet)) {
    packet.payload = 0;
    packet.offset += 1;
    return finish(packet, PacketKind::kOvf, 2);
  }
  if (context.skz84 && status == ReadStatus::kBadPacket && is_tma(bytes)) {
    return finish(packet, PacketKind::kInvalid, std::min(kCorruptTmaBytes, bytes.size()));
  }
  return status;
}

bool keeps_block(PacketKind kind) {
  switch (kind) {
    case PacketKind::kBip:
    case PacketKind::kPad:
    case PacketKind::kCyc:
    case PacketKind::kMtc:
    case PacketKind::kTsc:
    case PacketKind::kTma:
    case PacketKind::kCbr:
    case PacketKind::kFup:
    case PacketKind::kMnt:
    case PacketKind::kExstop:
    case PacketKind::kPwre:
    case PacketKind::kPwrx:
    case PacketKind::kTrig:
    case PacketKind::kInvalid:
      return true;
    default:
      return false;
  }
}

}  // namespace auxtrail::pt
