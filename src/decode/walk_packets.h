// The few packets that the fast walk reads itself, straight from the bytes.
//
// Everything that is not exactly as expected is refused (nullptr): the flow decoder sees it then.
// Reference: Intel SDM vol. 3, "Intel Processor Trace", "Trace Packets and Data Types".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pt/trace_clock.h"

namespace auxtrail::decode {

struct WalkOptions {
  bool skips_psb = false;          // a PSB+ that says nothing new is no matter
  bool skips_timing = false;       // nor is time
  bool stops_at_tsc = false;       // but for this one
  bool compressed_returns = true;  // a TNT bit may be a return's
  uint8_t mode_bits = 1;           // of MODE.Exec: what the flow is in
  // Is told of skipped TSC packets and PSB+, for whether a TMA may follow depends on them; if
  // `tells_time`, it is told of MTC and CYC packets, too.
  pt::TraceClock* clock = nullptr;
  bool tells_time = false;
};

enum class PacketClass : uint8_t { kOther, kTnt8, kPad, kExtended, kTip, kGap, kTiming };

inline constexpr unsigned kTipOpcode = 0x0d;
inline constexpr unsigned kPgeOpcode = 0x11;
inline constexpr unsigned kPgdOpcode = 0x01;
inline constexpr unsigned kFupOpcode = 0x1d;

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
  classes[0x59] = PacketClass::kTiming;  // MTC
  classes[0x19] = PacketClass::kTiming;  // TSC
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
  // By the three bits of the compression: how many bytes follow, and which bits of the last IP they
  // replace. No branches: how addresses are compressed is hard to predict.
  struct Shape {
    uint64_t replaced;
    uint64_t sign;
    uint8_t bytes;
  };
  constexpr uint64_t k48 = 0xffff'ffff'ffff;
  static constexpr std::array<Shape, 8> kShapes = {{{0, 0, 0},
                                                    {0xffff, 0, 2},
                                                    {0xffff'ffff, 0, 4},
                                                    {k48, uint64_t{1} << 47, 6},
                                                    {k48, 0, 6},
                                                    {0, 0, 0},
                                                    {~uint64_t{0}, 0, 8},
                                                    {0, 0, 0}}};
  if (position >= end || (*position & 0x1f) != kind) return nullptr;
  const Shape& shape = kShapes[*position >> 5];
  if (shape.bytes == 0 || static_cast<size_t>(end - position) < 1u + shape.bytes) return nullptr;
  const uint64_t raw = load(position + 1, end) & shape.replaced;
  const uint64_t kept = shape.sign != 0 ? 0 : ip & ~shape.replaced;
  ip = kept | ((raw ^ shape.sign) - shape.sign);
  return position + 1 + shape.bytes;
}

// TSC, MTC or CYC.
inline const uint8_t* read_timing(const uint8_t* position, const uint8_t* end,
                                  const WalkOptions& options, pt::TraceClock* clock) {
  if (!options.skips_timing) return nullptr;
  const auto available = static_cast<size_t>(end - position);
  switch (*position) {
    case 0x19:
      if (options.stops_at_tsc || available < 8) return nullptr;
      if (clock != nullptr) clock->tsc(load(position, end) >> 8);
      return position + 8;
    case 0x59:
      if (available < 2) return nullptr;
      if (clock != nullptr && options.tells_time) clock->mtc(position[1]);
      return position + 2;
    default: {  // CYC: five bits, then seven in each further byte
      constexpr size_t kMaxBytes = 9;
      uint64_t cycles = *position >> 3;
      bool more = (*position & 4) != 0;
      size_t size = 1;
      for (unsigned shift = 5; more; shift += 7) {
        if (size == available || size == kMaxBytes) return nullptr;
        const uint8_t next = position[size++];
        cycles |= uint64_t{next} >> 1 << shift;
        more = (next & 1) != 0;
      }
      if (clock != nullptr && options.tells_time) clock->cyc(cycles);
      return position + size;
    }
  }
}

// A whole PSB+ that only repeats what is known: the same mode, no transaction, tracing on at `ip`,
// or off (`has_ip` is false then). Behind its PSBEND.
inline const uint8_t* read_psb(const uint8_t* position, const uint8_t* end,
                               const WalkOptions& options, bool& has_ip, uint64_t& ip) {
  constexpr uint64_t kHalfPsb = 0x8202'8202'8202'8202;
  constexpr std::ptrdiff_t kPsbBytes = 16;
  has_ip = false;
  if (!options.skips_psb || end - position < kPsbBytes || load(position, end) != kHalfPsb ||
      load(position + 8, end) != kHalfPsb) {
    return nullptr;
  }
  position += kPsbBytes;
  while (position != nullptr && position < end) {
    const uint8_t opcode = *position;
    if (opcode == 0) {
      ++position;
    } else if (opcode == 0x02) {
      const std::ptrdiff_t left = end - position;
      if (left >= 2 && position[1] == 0x23) return position + 2;  // PSBEND
      if (left < 8) return nullptr;
      switch (position[1]) {
        case 0x03:  // CBR
          position += 4;
          break;
        case 0x73:                                                              // TMA
          if (((load(position, end) >> 32) & 0xfe'00'ff) != 0) return nullptr;  // bad
          position += 7;
          break;
        case 0xc8:  // VMCS
          position += 7;
          break;
        case 0x43:  // PIP
          position += 8;
          break;
        default:
          return nullptr;
      }
    } else if (opcode == 0x99) {  // MODE
      if (end - position < 2) return nullptr;
      const uint8_t payload = position[1];
      const bool is_known = payload >> 5 == 0   ? (payload & 3) == options.mode_bits
                            : payload >> 5 == 1 ? (payload & 3) == 0
                                                : false;
      if (!is_known) return nullptr;
      position += 2;
    } else if ((opcode & 0x1f) == kFupOpcode) {
      if (has_ip) return nullptr;
      has_ip = true;
      ip = 0;
      position = read_ip(position, end, kFupOpcode, ip);
    } else if (kPacketClasses[opcode] == PacketClass::kTiming) {
      position = read_timing(position, end, options, nullptr);
    } else {
      return nullptr;
    }
  }
  return nullptr;
}

// Tells the clock what a PSB+ that read_psb() accepted says. False, and nothing happened, if the
// clock refuses it.
inline bool feed_psb(const uint8_t* position, const uint8_t* end, pt::TraceClock& clock) {
  pt::TraceClock fed = clock;
  fed.psb();
  WalkOptions all;
  all.skips_timing = all.tells_time = true;
  auto status = pt::ClockStatus::kOk;
  for (position += 16; position < end;) {
    const uint64_t bytes = load(position, end);
    switch (*position) {
      case 0x19:
        status = fed.header_tsc(bytes >> 8);
        position += 8;
        break;
      case 0x02:
        switch (position[1]) {
          case 0x03:
            status = fed.header_cbr(static_cast<uint8_t>(bytes >> 16));
            position += 4;
            break;
          case 0x73:
            if ((bytes >> 32 & 0xff) != 0) return false;  // a bad packet
            status =
                fed.tma(static_cast<uint16_t>(bytes >> 16), static_cast<uint16_t>(bytes >> 40));
            position += 7;
            break;
          case 0x43:
            position += 8;
            break;
          case 0xc8:
            position += 7;
            break;
          default:
            position += 2;
            break;
        }
        break;
      case 0x99:
        position += 2;
        break;
      case 0x00:
        ++position;
        break;
      default: {
        uint64_t ip = 0;
        const uint8_t* next = read_ip(position, end, kFupOpcode, ip);
        position = next != nullptr ? next : read_timing(position, end, all, &fed);
        break;
      }
    }
    if (status == pt::ClockStatus::kBadPacket || status == pt::ClockStatus::kBadContext) {
      return false;
    }
  }
  clock = fed;
  return true;
}

}  // namespace auxtrail::decode
