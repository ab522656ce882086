// Intel PT packets as values: what a packet is called and what it carries.
//
// One flat struct for every kind, so that a reader, a printer and a test can handle all packets
// alike. Reference: Intel SDM vol. 3, "Intel Processor Trace", section "Trace Packets and Data
// Types".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace auxtrail::pt {

enum class PacketKind : uint8_t {
  kPad,
  kPsb,
  kPsbEnd,
  kFup,
  kTip,
  kTipPge,
  kTipPgd,
  kTnt8,
  kTnt64,
  kModeExec,
  kModeTsx,
  kPip,
  kVmcs,
  kCbr,
  kTsc,
  kTma,
  kMtc,
  kCyc,
  kStop,
  kOvf,
  kMnt,
  kExstop,
  kMwait,
  kPwre,
  kPwrx,
  kPtw,
  kCfe,  // the kinds from here on are newer than libipt 2.0.5
  kEvd,
  kBbp,
  kBip,
  kBep,
  kTrig,
  kInvalid,  // bytes to skip: what an erratum left of a packet (pt::Errata::skz84)
  kCount
};

// How the payload of FUP, TIP, TIP.PGE and TIP.PGD turns into an address.
enum class IpCompression : uint8_t {
  kSuppressed = 0,
  kUpdate16 = 1,
  kUpdate32 = 2,
  kSignExtend48 = 3,
  kUpdate48 = 4,
  kFull = 6,
};

struct Packet {
  PacketKind kind = PacketKind::kPad;
  uint8_t size_bytes = 0;

  // FUP, TIP*: how the address is compressed; `ip` is valid unless it is kSuppressed.
  IpCompression ipc = IpCompression::kSuppressed;

  // TNT: the number of bits; bit `tnt_bits - 1` of `payload` is the oldest branch, 1 means taken.
  uint8_t tnt_bits = 0;

  // The packet's second number: TMA fast counter, MWAIT extensions, PWRE sub state, PWRX deepest,
  // CFE/EVD/BBP type, BIP item id, PTW payload size in bytes, TRIG instruction count.
  uint32_t extra = 0;

  uint64_t offset = 0;  // of the packet's first byte in the trace

  // Its first number: TNT bits, raw IP bytes, TSC, CBR ratio, TMA ctc, MTC ctc, CYC cycles, PIP
  // cr3, VMCS base, MNT/PTW/EVD payload, MWAIT hints, PWRE state, PWRX last, CFE vector, BBP item
  // size, BIP value, TRIG's bits of the triggers that fired.
  uint64_t payload = 0;

  uint64_t ip = 0;

  // MODE.Exec: bit 0 csl, bit 1 csd, bit 2 interrupt flag. MODE.TSX: bit 0 in transaction, bit 1
  // abort. PIP: bit 0 non-root. EXSTOP, PTW, CFE, BEP: bit 0 an IP follows. PWRE: bit 0 by
  // hardware. PWRX: bit 0 interrupt, bit 1 store, bit 2 autonomous. TRIG: bit 0 an IP follows,
  // bit 1 there were more triggers than packets, bit 2 `extra` counts instructions.
  uint8_t flags = 0;

  [[nodiscard]] bool has_ip() const {
    return kind >= PacketKind::kFup && kind <= PacketKind::kTipPgd &&
           ipc != IpCompression::kSuppressed;
  }
};

// The SDM's name: "TIP.PGE", "TNT", "MODE.Exec".
std::string_view name(PacketKind kind);

// One line for people in the form of `perf script -D`: "TNT NTTN (4)", "TIP 0x401000", "CBR 0x20".
std::string text(const Packet& packet);

}  // namespace auxtrail::pt
