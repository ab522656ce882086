// Texts of packets against the same written with fmt, which is slower and easier to read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "pt/testing/packet_texts.h"
#include "pt/testing/random_trace.h"

namespace auxtrail::pt {
namespace {

std::string tnt(const Packet& packet) {
  std::string bits;
  for (int bit = packet.tnt_bits - 1; bit >= 0; --bit) {
    bits += (packet.payload >> bit & 1) != 0 ? 'T' : 'N';
  }
  return fmt::format("TNT {} ({})", bits, packet.tnt_bits);
}

int address_bits(uint8_t mode_exec) {
  switch (mode_exec & 3) {
    case 0:
      return 16;
    case 1:
      return 64;
    case 2:
      return 32;
    default:
      return 0;
  }
}

std::string reference(const Packet& packet) {
  const auto title = name(packet.kind);
  const auto payload = packet.payload;
  switch (packet.kind) {
    case PacketKind::kPad:
    case PacketKind::kPsb:
    case PacketKind::kPsbEnd:
    case PacketKind::kStop:
    case PacketKind::kOvf:
      return std::string(title);
    case PacketKind::kFup:
    case PacketKind::kTip:
    case PacketKind::kTipPge:
    case PacketKind::kTipPgd:
      return packet.has_ip() ? fmt::format("{} {:#x}", title, packet.ip)
                             : fmt::format("{} no ip", title);
    case PacketKind::kTnt8:
    case PacketKind::kTnt64:
      return tnt(packet);
    case PacketKind::kModeExec:
      return fmt::format("{} IF:{} {}", title, packet.flags >> 2, address_bits(packet.flags));
    case PacketKind::kModeTsx:
      return fmt::format("{} TXAbort:{} InTX:{}", title, packet.flags >> 1, packet.flags & 1);
    case PacketKind::kPip:
      return fmt::format("{} {:#x} (NR={})", title, payload, packet.flags);
    case PacketKind::kTma:
      return fmt::format("{} CTC {:#x} FC {:#x}", title, payload, packet.extra);
    case PacketKind::kMwait:
      return fmt::format("{} {:#x} Hints {:#x} Extensions {:#x}", title, payload, payload,
                         packet.extra);
    case PacketKind::kPwre:
      return fmt::format("{} HW:{} CState:{} Sub-CState:{}", title, packet.flags, payload,
                         packet.extra);
    case PacketKind::kPwrx:
      return fmt::format("{} Last CState:{} Deepest CState:{} Wake Reason {:#x}", title, payload,
                         packet.extra, packet.flags);
    case PacketKind::kPtw:
    case PacketKind::kExstop:
    case PacketKind::kBep:
      return packet.kind == PacketKind::kPtw
                 ? fmt::format("{} {:#x} IP:{}", title, payload, packet.flags)
                 : fmt::format("{} IP:{}", title, packet.flags);
    case PacketKind::kCfe:
      return fmt::format("{} IP:{} Type {:#04x} Vector {:#04x}", title, packet.flags, packet.extra,
                         payload);
    case PacketKind::kEvd:
      return fmt::format("{} Type {:#04x} Payload {:#x}", title, packet.extra, payload);
    case PacketKind::kBbp:
      return fmt::format("{} SZ {}-byte Type {:#x}", title, payload, packet.extra);
    case PacketKind::kBip:
      return fmt::format("{} ID {:#04x} Value {:#x}", title, packet.extra, payload);
    case PacketKind::kTrig:
      return fmt::format("{} IP:{} MULT:{} Triggers {:#04x}{}", title, packet.flags & 1,
                         packet.flags >> 1 & 1, payload,
                         (packet.flags & 4) != 0 ? fmt::format(" ICNT {}", packet.extra) : "");
    default:
      return fmt::format("{} {:#x}", title, payload);
  }
}

TEST(PacketTextTest, EveryPacketReadsAsWithFmt) {
  std::array<uint64_t, static_cast<size_t>(PacketKind::kCount)> kinds{};
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto trace = testing::RandomTrace(seed).make_with_newer(2'000);
    PacketReader reader(trace);
    Packet packet;
    while (reader.next(packet) == ReadStatus::kPacket) {
      ASSERT_EQ(text(packet), reference(packet));
      ASSERT_LE(text(packet).size(), kMaxTextBytes);
      ++kinds[static_cast<size_t>(packet.kind)];
    }
    ASSERT_EQ(reader.offset(), trace.size());
  }
  for (size_t i = 0; i < static_cast<size_t>(PacketKind::kInvalid); ++i) {
    EXPECT_GT(kinds[i], 0) << name(static_cast<PacketKind>(i));
  }
}

// What no reader makes has room as well.
TEST(PacketTextTest, TheLongestTextsHaveRoom) {
  for (size_t kind = 0; kind < static_cast<size_t>(PacketKind::kCount); ++kind) {
    const Packet packet{.kind = static_cast<PacketKind>(kind),
                        .size_bytes = 255,
                        .ipc = IpCompression::kFull,
                        .tnt_bits = 64,
                        .extra = ~uint32_t{0},
                        .payload = ~uint64_t{0},
                        .ip = ~uint64_t{0},
                        .flags = 255};
    EXPECT_LT(text(packet).size(), kMaxTextBytes) << name(packet.kind);
  }
}

}  // namespace
}  // namespace auxtrail::pt
