// Packets as text, in the form of `perf script -D`.
#include <fmt/format.h>

#include <array>

#include "pt/packet.h"

namespace auxtrail::pt {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(PacketKind::kCount)> kNames = {
    "PAD",       "PSB",      "PSBEND", "FUP",    "TIP",   "TIP.PGE", "TIP.PGD", "TNT",     "TNT",
    "MODE.Exec", "MODE.TSX", "PIP",    "VMCS",   "CBR",   "TSC",     "TMA",     "MTC",     "CYC",
    "TraceSTOP", "OVF",      "MNT",    "EXSTOP", "MWAIT", "PWRE",    "PWRX",    "PTWRITE", "CFE",
    "EVD",       "BBP",      "BIP",    "BEP",    "TRIG",  "skipped"};

std::string tnt_text(const Packet& packet) {
  std::string line = "TNT ";
  for (int bit = packet.tnt_bits - 1; bit >= 0; --bit) {
    line += (packet.payload >> bit & 1) != 0 ? 'T' : 'N';
  }
  return line + fmt::format(" ({})", packet.tnt_bits);
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

}  // namespace

std::string_view name(PacketKind kind) {
  return kind < PacketKind::kCount ? kNames[static_cast<size_t>(kind)] : "unknown";
}

std::string text(const Packet& packet) {
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
      return tnt_text(packet);
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
    default:
      return fmt::format("{} {:#x}", title, payload);
  }
}

}  // namespace auxtrail::pt
