// The few packets that the fast walk reads itself, straight from the bytes.
//
// Everything that is not exactly as expected is refused (nullptr): the flow decoder sees it then.
// Reference: Intel SDM vol. 3, "Intel Processor Trace", "Trace Packets and Data Types".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pt/packet_shape.h"
#include "pt/trace_clock.h"

namespace auxtrail::decode {

struct WalkOptions {
  bool stops_at_tsc = false;       // the flow must be looked at with its time
  bool compressed_returns = true;  // a TNT bit may be a return's
  uint8_t mode_bits = 1;           // of MODE.Exec: what the flow is in
  // The flow decoder's. Is told of skipped TSC packets and PSB+, for whether a TMA may follow
  // depends on them; if `tells_time`, it is told of MTC and CYC packets, too.
  pt::TraceClock* clock = nullptr;
  bool tells_time = false;
};

enum class PacketClass : uint8_t { kOther, kTnt8, kPad, kExtended, kTip, kGap, kTiming };

inline constexpr unsigned kTipOpcode = 0x0d;
inline constexpr unsigned kPgeOpcode = 0x11;
inline constexpr unsigned kPgdOpcode = 0x01;
inline constexpr unsigned kFupOpcode = 0x1d;
inline constexpr unsigned kTscOpcode = 0x19;
inline constexpr unsigned kMtcOpcode = 0x59;

constexpr std::array<PacketClass, 256> make_packet_classes() {
  std::array<PacketClass, 256> classes{};
  for (unsigned i = 0; i < 256; ++i) {
    if ((i & 1) == 0) classes[i] = PacketClass::kTnt8;
    if ((i & 3) == 3) classes[i] = PacketClass::kTiming;  // CYC
  }
  classes[0x00] = PacketClass::kPad;
  classes[0x02] = PacketClass::kExtended;
  for (const unsigned ipc : {1u, 2u, 3u, 4u, 6u}) {
    classes[kTipOpcode | ipc << 5] = PacketClass::kTip;
    classes[kPgdOpcode | ipc << 5] = PacketClass::kGap;
  }
  classes[kMtcOpcode] = PacketClass::kTiming;
  classes[kTscOpcode] = PacketClass::kTiming;
  return classes;
}
inline constexpr std::array<PacketClass, 256> kPacketClasses = make_packet_classes();

// Up to eight bytes, little endian; what lies behind `end` is 0.
inline uint64_t load(const uint8_t* from, const uint8_t* end) {
  uint64_t value = 0;
  const auto available = static_cast<size_t>(end - from);
  if (available >= sizeof value) [[likely]] {
    std::memcpy(&value, from, sizeof value);
  } else {
    std::memcpy(&value, from, available);
  }
  return value;
}

// A packet of this kind with an address; `ip` is the last IP before and after. Behind the packet.
inline const uint8_t* read_ip(const uint8_t* position, const uint8_t* end, unsigned kind,
                              uint64_t& ip) {
  if (position >= end || (*position & 0x1f) != kind) return nullptr;
  const pt::shapes::Shape& shape = pt::shapes::kShapes[*position];
  const size_t bytes = shape.size_bytes - size_t{1};  // of a reserved compression: very many
  if (bytes == 0 || static_cast<size_t>(end - position) <= bytes) return nullptr;
  const uint64_t raw = load(position + 1, end) & pt::shapes::kLowBytes[bytes];
  ip = pt::shapes::decompress(shape.ipc, raw, ip);
  return position + shape.size_bytes;
}

// A CYC packet: five bits, then seven in each further byte.
inline const uint8_t* read_cyc(const uint8_t* position, const uint8_t* end, uint64_t& cycles) {
  constexpr std::ptrdiff_t kMaxBytes = 9;
  cycles = *position >> 3;
  bool more = (*position & 4) != 0;
  std::ptrdiff_t size = 1;
  for (unsigned shift = 5; more; shift += 7) {
    if (size == end - position || size == kMaxBytes) return nullptr;
    const uint8_t next = position[size++];
    cycles |= uint64_t{next} >> 1 << shift;
    more = (next & 1) != 0;
  }
  return position + size;
}

// TSC, MTC or CYC, outside of a PSB+.
inline const uint8_t* read_timing(const uint8_t* position, const uint8_t* end,
                                  const WalkOptions& options) {
  if (*position == kTscOpcode) {
    if (options.stops_at_tsc || end - position < 8) return nullptr;
    options.clock->tsc(load(position, end) >> 8);
    return position + 8;
  }
  if (*position == kMtcOpcode) {
    if (end - position < 2) return nullptr;
    if (options.tells_time) options.clock->mtc(position[1]);
    return position + 2;
  }
  uint64_t cycles = 0;
  const uint8_t* behind = read_cyc(position, end, cycles);
  if (behind != nullptr && options.tells_time) options.clock->cyc(cycles);
  return behind;
}

// How a packet within a PSB+ is to be taken.
struct PsbPacket {
  uint8_t size_bytes = 0;  // 0: not to be skipped
  pt::ClockStatus status = pt::ClockStatus::kOk;
};

// One of two opcode bytes; eight bytes are there. Tells the clock.
inline PsbPacket read_extended_in_psb(const uint8_t* position, uint64_t bytes,
                                      pt::TraceClock& clock) {
  switch (position[1]) {
    case 0x03:  // CBR
      return {4, clock.header_cbr(static_cast<uint8_t>(bytes >> 16))};
    case 0x73:                                         // TMA
      if ((bytes >> 32 & 0xfe'00'ff) != 0) return {};  // a bad packet
      return {7, clock.tma(static_cast<uint16_t>(bytes >> 16), static_cast<uint16_t>(bytes >> 40))};
    case 0xc8:  // VMCS
      return {7};
    case 0x43:  // PIP
      return {8};
    default:
      return {};
  }
}

// A whole PSB+ that only repeats what is known: the same mode, no transaction, tracing on at `ip`,
// or off (`has_ip` is false then). Behind its PSBEND. `options.clock` was told of what it says,
// also of the beginning of one that is refused.
inline const uint8_t* read_psb(const uint8_t* position, const uint8_t* end,
                               const WalkOptions& options, bool& has_ip, uint64_t& ip) {
  constexpr uint64_t kHalfPsb = 0x8202'8202'8202'8202;
  constexpr std::ptrdiff_t kPsbBytes = 16;
  has_ip = false;
  if (end - position < kPsbBytes || load(position, end) != kHalfPsb ||
      load(position + 8, end) != kHalfPsb) {
    return nullptr;
  }
  pt::TraceClock& clock = *options.clock;
  clock.psb();
  position += kPsbBytes;
  while (position != nullptr && position < end) {
    const uint8_t opcode = *position;
    const std::ptrdiff_t left = end - position;
    const uint64_t bytes = load(position, end);
    PsbPacket packet;
    if (opcode == 0) {
      packet = {1};
    } else if (opcode == 0x02) {
      if (left >= 2 && position[1] == 0x23) return position + 2;  // PSBEND
      if (left >= 8) packet = read_extended_in_psb(position, bytes, clock);
    } else if (opcode == 0x99 && left >= 2) {  // MODE
      const uint8_t payload = position[1];
      const bool is_known = payload >> 5 == 0   ? (payload & 3) == options.mode_bits
                            : payload >> 5 == 1 ? (payload & 3) == 0
                                                : false;
      if (is_known) packet = {2};
    } else if (opcode == kTscOpcode && left >= 8 && !options.stops_at_tsc) {
      packet = {8, clock.header_tsc(bytes >> 8)};
    } else if (opcode == kMtcOpcode && left >= 2) {
      clock.mtc(position[1]);
      packet = {2};
    } else if ((opcode & 3) == 3) {
      uint64_t cycles = 0;
      position = read_cyc(position, end, cycles);
      if (position != nullptr) clock.cyc(cycles);
      continue;
    } else if ((opcode & 0x1f) == kFupOpcode && !has_ip) {
      has_ip = true;
      ip = 0;
      position = read_ip(position, end, kFupOpcode, ip);
      continue;
    }
    const bool refused = packet.status == pt::ClockStatus::kBadPacket ||
                         packet.status == pt::ClockStatus::kBadContext;
    if (packet.size_bytes == 0 || refused) return nullptr;
    position += packet.size_bytes;
  }
  return nullptr;
}

}  // namespace auxtrail::decode
