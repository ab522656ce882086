// Packets as text, in the form of `perf script -D`; written by hand because a trace has millions.
#include <algorithm>
#include <array>

#include "pt/packet.h"
#include "pt/text_cursor.h"

namespace auxtrail::pt {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(PacketKind::kCount)> kNames = {
    "PAD",       "PSB",      "PSBEND", "FUP",    "TIP",   "TIP.PGE", "TIP.PGD", "TNT",     "TNT",
    "MODE.Exec", "MODE.TSX", "PIP",    "VMCS",   "CBR",   "TSC",     "TMA",     "MTC",     "CYC",
    "TraceSTOP", "OVF",      "MNT",    "EXSTOP", "MWAIT", "PWRE",    "PWRX",    "PTWRITE", "CFE",
    "EVD",       "BBP",      "BIP",    "BEP",    "TRIG",  "skipped"};

unsigned address_bits(uint8_t mode_exec) {
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

void put_tnt(const Packet& packet, TextCursor& line) {
  const unsigned bits = std::min<unsigned>(packet.tnt_bits, 64);
  line.put(" ");
  for (unsigned bit = bits; bit-- > 0;) line.put((packet.payload >> bit & 1) != 0 ? 'T' : 'N');
  line.put(" (").decimal(bits).put(")");
}

void put_ip(const Packet& packet, TextCursor& line) {
  if (packet.has_ip()) {
    line.put(" ").hex(packet.ip);
  } else {
    line.put(" no ip");
  }
}

void put_trig(const Packet& packet, TextCursor& line) {
  line.put(" IP:").decimal(packet.flags & 1U).put(" MULT:").decimal(packet.flags >> 1 & 1U);
  line.put(" Triggers ").hex(packet.payload, 2);
  if ((packet.flags & 4) != 0) line.put(" ICNT ").decimal(packet.extra);
}

void put_power(const Packet& packet, TextCursor& line) {
  if (packet.kind == PacketKind::kPwre) {
    line.put(" HW:").decimal(packet.flags).put(" CState:").decimal(packet.payload);
    line.put(" Sub-CState:").decimal(packet.extra);
  } else {
    line.put(" Last CState:").decimal(packet.payload).put(" Deepest CState:");
    line.decimal(packet.extra).put(" Wake Reason ").hex(packet.flags);
  }
}

void put_block(const Packet& packet, TextCursor& line) {
  if (packet.kind == PacketKind::kBbp) {
    line.put(" SZ ").decimal(packet.payload).put("-byte Type ").hex(packet.extra);
  } else {
    line.put(" ID ").hex(packet.extra, 2).put(" Value ").hex(packet.payload);
  }
}

// What stands behind the name.
void put_fields(const Packet& packet, TextCursor& line) {
  const auto payload = packet.payload;
  switch (packet.kind) {
    case PacketKind::kPad:
    case PacketKind::kPsb:
    case PacketKind::kPsbEnd:
    case PacketKind::kStop:
    case PacketKind::kOvf:
      break;
    case PacketKind::kFup:
    case PacketKind::kTip:
    case PacketKind::kTipPge:
    case PacketKind::kTipPgd:
      put_ip(packet, line);
      break;
    case PacketKind::kTnt8:
    case PacketKind::kTnt64:
      put_tnt(packet, line);
      break;
    case PacketKind::kModeExec:
      line.put(" IF:").decimal(packet.flags >> 2U).put(" ").decimal(address_bits(packet.flags));
      break;
    case PacketKind::kModeTsx:
      line.put(" TXAbort:").decimal(packet.flags >> 1U).put(" InTX:").decimal(packet.flags & 1U);
      break;
    case PacketKind::kPip:
      line.put(" ").hex(payload).put(" (NR=").decimal(packet.flags).put(")");
      break;
    case PacketKind::kTma:
      line.put(" CTC ").hex(payload).put(" FC ").hex(packet.extra);
      break;
    case PacketKind::kMwait:
      line.put(" ").hex(payload).put(" Hints ").hex(payload).put(" Extensions ").hex(packet.extra);
      break;
    case PacketKind::kPwre:
    case PacketKind::kPwrx:
      put_power(packet, line);
      break;
    case PacketKind::kPtw:
      line.put(" ").hex(payload).put(" IP:").decimal(packet.flags);
      break;
    case PacketKind::kExstop:
    case PacketKind::kBep:
      line.put(" IP:").decimal(packet.flags);
      break;
    case PacketKind::kCfe:
      line.put(" IP:").decimal(packet.flags).put(" Type ").hex(packet.extra, 2).put(" Vector ");
      line.hex(payload, 2);
      break;
    case PacketKind::kEvd:
      line.put(" Type ").hex(packet.extra, 2).put(" Payload ").hex(payload);
      break;
    case PacketKind::kBbp:
    case PacketKind::kBip:
      put_block(packet, line);
      break;
    case PacketKind::kTrig:
      put_trig(packet, line);
      break;
    case PacketKind::kInvalid:
      line.put(" ").decimal(packet.size_bytes).put(" bytes");
      break;
    default:
      line.put(" ").hex(payload);
      break;
  }
}

}  // namespace

std::string_view name(PacketKind kind) {
  return kind < PacketKind::kCount ? kNames[static_cast<size_t>(kind)] : "unknown";
}

char* write_text(const Packet& packet, char* out) {
  TextCursor line(out);
  line.put(name(packet.kind));
  put_fields(packet, line);
  return line.end();
}

std::string text(const Packet& packet) {
  std::array<char, kMaxTextBytes> line;
  return {line.data(), write_text(packet, line.data())};
}

}  // namespace auxtrail::pt
