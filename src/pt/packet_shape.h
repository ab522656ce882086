// Tables for PacketReader's shortcut: the packets whose opcode is one byte and tells the size, and
// how the payload of an IP packet becomes an address.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "pt/packet.h"

namespace auxtrail::pt::shapes {

// A packet of one byte of opcode and `size_bytes - 1` bytes of number; size 0: not one of these.
struct Shape {
  PacketKind kind = PacketKind::kPad;
  uint8_t size_bytes = 0;
  IpCompression ipc = IpCompression::kSuppressed;
};

constexpr void put_ip_shapes(std::array<Shape, 256>& shapes, PacketKind kind, uint8_t opcode) {
  constexpr std::array<uint8_t, 8> kSizes = {1, 3, 5, 7, 7, 0, 9, 0};
  for (size_t ipc = 0; ipc < kSizes.size(); ++ipc) {
    if (kSizes[ipc] == 0) continue;
    shapes[ipc << 5 | opcode] = {kind, kSizes[ipc], static_cast<IpCompression>(ipc)};
  }
}

constexpr std::array<Shape, 256> make_shapes() {
  std::array<Shape, 256> shapes{};
  shapes[0x00] = {PacketKind::kPad, 1};
  shapes[0x19] = {PacketKind::kTsc, 8};
  shapes[0x59] = {PacketKind::kMtc, 2};
  put_ip_shapes(shapes, PacketKind::kTipPgd, 0x01);
  put_ip_shapes(shapes, PacketKind::kTip, 0x0d);
  put_ip_shapes(shapes, PacketKind::kTipPge, 0x11);
  put_ip_shapes(shapes, PacketKind::kFup, 0x1d);
  return shapes;
}

inline constexpr std::array<Shape, 256> kShapes = make_shapes();

// The lowest N bytes of a number.
inline constexpr std::array<uint64_t, 9> kLowBytes = {0x0,
                                                      0xff,
                                                      0xffff,
                                                      0xff'ffff,
                                                      0xffff'ffff,
                                                      0xff'ffff'ffff,
                                                      0xffff'ffff'ffff,
                                                      0xff'ffff'ffff'ffff,
                                                      0xffff'ffff'ffff'ffff};

// By IpCompression: the bytes of the last address that stay.
inline constexpr std::array<uint64_t, 8> kKeptAddressBits = {
    ~uint64_t{0}, ~kLowBytes[2], ~kLowBytes[4], 0, ~kLowBytes[6], ~uint64_t{0}, 0, ~uint64_t{0}};

// SDM: a compressed address replaces the low bytes of the last one.
constexpr uint64_t decompress(IpCompression ipc, uint64_t payload, uint64_t last_ip) {
  const unsigned shift = ipc == IpCompression::kSignExtend48 ? 16 : 0;
  const auto extended = static_cast<int64_t>(payload << shift) >> shift;
  return (last_ip & kKeptAddressBits[static_cast<uint8_t>(ipc)]) | static_cast<uint64_t>(extended);
}

}  // namespace auxtrail::pt::shapes
