#include "pt/testing/ptdump.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "pt/packet_reader.h"
#include "pt/psb_search.h"

namespace auxtrail::pt::testing {
namespace {

std::string ip_payload(const Packet& packet) {
  constexpr std::array<size_t, 8> kDigits = {0, 4, 8, 16, 12, 0, 16, 0};
  const size_t digits = kDigits[static_cast<size_t>(packet.ipc)];
  const uint64_t shown = packet.ipc == IpCompression::kSignExtend48 ? packet.ip : packet.payload;
  return fmt::format("{}: {}{}", static_cast<int>(packet.ipc), std::string(16 - digits, '?'),
                     digits == 0 ? "" : fmt::format("{:0{}x}", shown, digits));
}

std::string ip(const char* name, const Packet& packet, const PtdumpOptions& options) {
  std::string line = fmt::format("{} {}", name, ip_payload(packet));
  if (!options.last_ip) return line;
  return line + (packet.has_ip() ? fmt::format(" ip {:016x}", packet.ip) : " ip <suppressed>");
}

std::string tnt(const char* name, const Packet& packet) {
  std::string bits;
  for (int bit = packet.tnt_bits - 1; bit >= 0; --bit) {
    bits += (packet.payload >> bit & 1) != 0 ? '!' : '.';
  }
  return fmt::format("{} {}", name, bits);
}

std::string flags(std::initializer_list<std::pair<bool, const char*>> all) {
  std::string text;
  for (const auto& [set, name] : all) {
    if (set) text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

std::string mode_exec(const Packet& packet, const PtdumpOptions& options) {
  constexpr std::array kModes = {"16-bit", "64-bit", "32-bit", "unknown"};
  std::string line = "mode.exec " + flags({{(packet.flags & 2) != 0, "cs.d"},
                                           {(packet.flags & 1) != 0, "cs.l"},
                                           {(packet.flags & 4) != 0, "if"}});
  return options.exec_mode ? fmt::format("{} em {}", line, kModes[packet.flags & 3]) : line;
}

std::string pwrx(const Packet& packet) {
  constexpr std::array kReasons = {"bad", "int", "st", "bad", "hw", "bad", "bad", "bad"};
  return fmt::format("pwrx {}: c{}, c{}", kReasons[packet.flags & 7], (packet.payload + 1) & 15,
                     (packet.extra + 1) & 15);
}

std::string cfe(const Packet& packet) {
  constexpr std::array kTypes = {"",      "intr",    "iret",   "smi",         "rsm",      "sipi",
                                 "init",  "vmentry", "vmexit", "vmexit_intr", "shutdown", "",
                                 "uintr", "uiret",   "swintr", "syscall"};
  const std::string type =
      packet.extra < kTypes.size() && *kTypes[packet.extra] != 0 ? kTypes[packet.extra] : "unknown";
  std::string vector;
  if (type == "sipi") vector = fmt::format(": {:x}", packet.payload);
  if (type.ends_with("intr")) vector = fmt::format(": {}", packet.payload);
  return fmt::format("cfe {}{}{} type {}", packet.extra, vector,
                     (packet.flags & 1) != 0 ? ", ip" : "", type);
}

std::string evd(const Packet& packet) {
  constexpr std::array kTypes = {"cr2", "vmxq", "vmxr"};
  return fmt::format("evd {}: {:x} type {}", packet.extra, packet.payload,
                     packet.extra < kTypes.size() ? kTypes[packet.extra] : "unknown");
}

std::string trig(const Packet& packet) {
  std::string line =
      fmt::format("trig {:02x}{}{}", packet.payload, (packet.flags & 1) != 0 ? ", ip" : "",
                  (packet.flags & 2) != 0 ? ", mult" : "");
  return (packet.flags & 4) != 0 ? fmt::format("{}, icnt: {}", line, packet.extra) : line;
}

std::string packet_text(const Packet& packet, const PtdumpOptions& options) {
  const uint64_t payload = packet.payload;
  const bool flag = (packet.flags & 1) != 0;
  switch (packet.kind) {
    case PacketKind::kPad:
      return "pad";
    case PacketKind::kPsb:
      return "psb";
    case PacketKind::kPsbEnd:
      return "psbend";
    case PacketKind::kFup:
      return ip("fup", packet, options);
    case PacketKind::kTip:
      return ip("tip", packet, options);
    case PacketKind::kTipPge:
      return ip("tip.pge", packet, options);
    case PacketKind::kTipPgd:
      return ip("tip.pgd", packet, options);
    case PacketKind::kTnt8:
      return tnt("tnt.8", packet);
    case PacketKind::kTnt64:
      return tnt("tnt.64", packet);
    case PacketKind::kModeExec:
      return mode_exec(packet, options);
    case PacketKind::kModeTsx:
      return "mode.tsx " + flags({{flag, "intx"}, {(packet.flags & 2) != 0, "abrt"}});
    case PacketKind::kPip:
      return fmt::format("pip {:x}{} cr3 {:016x}", payload, flag ? ", nr" : "", payload);
    case PacketKind::kVmcs:
      return fmt::format("vmcs {:x} vmcs {:016x}", payload, payload);
    case PacketKind::kCbr:
      return fmt::format("cbr {:x}", payload);
    case PacketKind::kTsc:
      return fmt::format("tsc {:x}", payload);
    case PacketKind::kTma:
      return fmt::format("tma {:x}, {:x}", payload, packet.extra);
    case PacketKind::kMtc:
      return fmt::format("mtc {:x}", payload);
    case PacketKind::kCyc:
      return fmt::format("cyc {:x}", payload);
    case PacketKind::kStop:
      return "stop";
    case PacketKind::kOvf:
      return "ovf";
    case PacketKind::kMnt:
      return fmt::format("mnt {:x}", payload);
    case PacketKind::kExstop:
      return flag ? "exstop ip" : "exstop";
    case PacketKind::kMwait:
      return fmt::format("mwait {:08x}, {:08x}", payload, packet.extra);
    case PacketKind::kPwre:
      return fmt::format("pwre c{}.{}{}", (payload + 1) & 15, (packet.extra + 1) & 15,
                         flag ? ", hw" : "");
    case PacketKind::kPwrx:
      return pwrx(packet);
    case PacketKind::kPtw:
      return fmt::format("ptw {}: {:x}{}", packet.extra == 4 ? 0 : 1, payload, flag ? ", ip" : "");
    case PacketKind::kCfe:
      return cfe(packet);
    case PacketKind::kEvd:
      return evd(packet);
    case PacketKind::kTrig:
      return trig(packet);
    case PacketKind::kInvalid:
      return "<invalid>";
    default:
      return fmt::format("<{}>", name(packet.kind));
  }
}

std::string with_single_blanks(const std::string& line) {
  std::istringstream words(line);
  std::string result;
  for (std::string word; words >> word;) result += (result.empty() ? "" : " ") + word;
  return result;
}

}  // namespace

PtdumpOptions ptdump_options(std::string_view text, std::vector<std::string>& unknown) {
  static const std::set<std::string> kClock = {
      "--time", "--time-delta", "--tcal", "--no-tcal", "--no-wall-clock", "--keep-tcal-on-ovf"};
  static const std::set<std::string> kClockWithNumber = {"--mtc-freq", "--nom-freq",
                                                         "--cpuid-0x15.eax", "--cpuid-0x15.ebx"};
  PtdumpOptions options;
  std::istringstream words{std::string(text)};
  for (std::string word; words >> word;) {
    if (word == "--no-offset") {
      options.offset = false;
    } else if (word == "--no-sync") {
      options.sync = false;
    } else if (word == "--no-cyc") {
      options.cyc = false;
    } else if (word == "--lastip") {
      options.last_ip = true;
    } else if (word == "--exec-mode") {
      options.exec_mode = true;
    } else if (kClockWithNumber.contains(word)) {
      words >> word;
    } else if (!kClock.contains(word)) {
      unknown.push_back(word);
    }
  }
  return options;
}

std::vector<std::string> ptdump(std::span<const std::byte> trace, const PtdumpOptions& options,
                                const Errata& errata) {
  std::vector<std::string> lines;
  PacketReader reader(trace, errata);
  size_t sync = 0;
  if (options.sync) {
    if (!reader.sync_forward()) return lines;
    sync = reader.offset();
  }
  while (true) {
    const size_t offset = reader.offset();
    Packet packet;
    const ReadStatus status = reader.next(packet);
    if (status == ReadStatus::kPacket) {
      if (packet.kind == PacketKind::kCyc && !options.cyc) continue;
      const std::string text = packet_text(packet, options);
      lines.push_back(
          with_single_blanks(options.offset ? fmt::format("{:016x} {}", offset, text) : text));
      continue;
    }
    if (status == ReadStatus::kEnd || status == ReadStatus::kTruncated) return lines;
    lines.push_back(
        fmt::format("[{:x}: error decoding packet: {}]", offset,
                    status == ReadStatus::kBadOpcode ? "unknown opcode" : "unknown packet"));
    const auto psb = find_psb_after_error(trace, offset, sync);
    if (!psb) return lines;
    sync = *psb;
    reader.seek(sync);
  }
}

}  // namespace auxtrail::pt::testing
