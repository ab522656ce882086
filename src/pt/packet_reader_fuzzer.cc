// Fuzzes PacketReader, with and without errata: it must end, stay inside its bytes, agree with
// libipt on every packet's size, and with itself whether it skips padding or not. And the search
// for PSBs: it must find what a search byte by byte finds.
#include <intel-pt.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

#include "pt/packet_reader.h"
#include "pt/psb_search.h"

namespace {

using namespace auxtrail::pt;

void require(bool condition) {
  if (!condition) std::abort();
}

bool is_newer_than_libipt(PacketKind kind) {
  return kind >= PacketKind::kCfe && kind != PacketKind::kInvalid;
}

void compare(ReadStatus status, const Packet& packet, int libipt_status) {
  // Packets newer than libipt are unknown to it, whole or cut short.
  if (status == ReadStatus::kPacket && is_newer_than_libipt(packet.kind)) {
    require(libipt_status == -pte_bad_opc);
    return;
  }
  switch (status) {
    case ReadStatus::kPacket:
      // The last byte of SKZ84's eight may be missing.
      require(libipt_status == packet.size_bytes ||
              (packet.kind == PacketKind::kInvalid && libipt_status == packet.size_bytes + 1));
      break;
    case ReadStatus::kEnd:
    case ReadStatus::kTruncated:
      require(libipt_status == -pte_eos || libipt_status == -pte_bad_opc);
      break;
    case ReadStatus::kBadOpcode:
      require(libipt_status == -pte_bad_opc);
      break;
    case ReadStatus::kBadPacket:
      require(libipt_status == -pte_bad_packet);
      break;
  }
}

class Libipt {
 public:
  Libipt(std::span<const std::byte> trace, const Errata& errata) {
    pt_config config;
    pt_config_init(&config);
    config.errata.skz84 = errata.skz84 ? 1 : 0;
    config.begin = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(trace.data()));
    config.end = config.begin + trace.size();
    decoder_.reset(pt_pkt_alloc_decoder(&config));
  }
  int at(size_t offset) {
    pt_packet packet;
    require(pt_pkt_sync_set(decoder_.get(), offset) >= 0);
    return pt_pkt_next(decoder_.get(), &packet, sizeof(packet));
  }

 private:
  std::unique_ptr<pt_packet_decoder, decltype(&pt_pkt_free_decoder)> decoder_{nullptr,
                                                                              &pt_pkt_free_decoder};
};

void check_packets(std::span<const std::byte> trace, const Errata& errata) {
  Libipt libipt(trace, errata);
  PacketReader reader(trace, errata);
  bool block_seen = false;  // whose items libipt does not know
  std::array<char, kMaxTextBytes> text;
  while (reader.offset() < trace.size()) {
    const size_t offset = reader.offset();
    Packet packet;
    const auto status = reader.next(packet);
    block_seen |= packet.kind == PacketKind::kBbp;
    // libipt 2.0.5 does not know SKD007 here.
    const bool overflow = status == ReadStatus::kPacket && packet.offset == offset + 1;
    require(!overflow || (errata.skd007 && packet.kind == PacketKind::kOvf));
    if (!block_seen && !overflow) compare(status, packet, libipt.at(offset));
    if (status == ReadStatus::kPacket) {
      require(overflow || packet.offset == offset);
      require(packet.size_bytes > 0 && reader.offset() == packet.offset + packet.size_bytes);
      require(reader.offset() <= trace.size());
      require(write_text(packet, text.data()) <= text.data() + text.size());
      continue;
    }
    require(reader.offset() == offset);
    if (!reader.sync_forward() || reader.offset() == offset) reader.seek(offset + 1);
    require(reader.offset() > offset);
  }
}

void check_padding(std::span<const std::byte> trace) {
  PacketReader all(trace);
  PacketReader some(trace, {}, Padding::kSkip);
  ReadStatus expected = ReadStatus::kPacket;
  while (expected == ReadStatus::kPacket) {
    Packet want;
    do {
      want.kind = PacketKind::kOvf;
      expected = all.next(want);
    } while (expected == ReadStatus::kPacket && want.kind == PacketKind::kPad);
    Packet have;
    require(some.next(have) == expected);
    require(all.offset() == some.offset());
    if (expected != ReadStatus::kPacket) break;
    require(want.kind == have.kind && want.payload == have.payload && want.ip == have.ip &&
            want.extra == have.extra && want.flags == have.flags && want.offset == have.offset);
  }
}

bool is_pair(std::span<const std::byte> trace, size_t at) {
  return at + 2 <= trace.size() && trace[at] == std::byte{0x02} && trace[at + 1] == std::byte{0x82};
}

void check_psbs(std::span<const std::byte> trace) {
  std::vector<size_t> psbs;
  for (size_t at = 0; at < trace.size(); ++at) {
    size_t pairs = 0;
    while (pairs < 9 && is_pair(trace, at + 2 * pairs)) ++pairs;
    if (pairs == 8) psbs.push_back(at);
  }
  size_t from = 0;
  for (const size_t psb : psbs) {
    require(find_psb(trace, from) == psb);
    from = psb + 1;
  }
  require(!find_psb(trace, from));
  size_t before = trace.size();
  for (auto psb = psbs.rbegin(); psb != psbs.rend(); ++psb) {
    require(find_psb_backward(trace, before) == *psb);
    before = *psb;
  }
  require(!find_psb_backward(trace, before));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto trace = std::as_bytes(std::span(data, size));
  if (trace.empty()) return 0;
  check_packets(trace, {});
  check_packets(trace, {.skd007 = true, .skz84 = true});
  check_padding(trace);
  check_psbs(trace);
  return 0;
}
