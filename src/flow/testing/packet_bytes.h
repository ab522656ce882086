// PacketBytes: traces by hand, packet after packet, for tests. Addresses are sign extended 48 bit
// ones, so that no test depends on the last IP unless it wants to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace auxtrail::flow::test {

class PacketBytes {
 public:
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] size_t size() const { return bytes_.size(); }

  PacketBytes& raw(std::initializer_list<int> bytes) {
    for (const int byte : bytes) bytes_.push_back(static_cast<std::byte>(byte));
    return *this;
  }
  PacketBytes& number(uint64_t value, int count) {
    for (int i = 0; i < count; ++i) bytes_.push_back(static_cast<std::byte>(value >> 8 * i));
    return *this;
  }
  PacketBytes& pad() { return raw({0}); }
  PacketBytes& psb() { return number(0x8202820282028202, 8).number(0x8202820282028202, 8); }
  PacketBytes& psbend() { return raw({0x02, 0x23}); }
  PacketBytes& ovf() { return raw({0x02, 0xf3}); }
  PacketBytes& stop() { return raw({0x02, 0x83}); }

  PacketBytes& tip(uint64_t ip) { return raw({0x6d}).number(ip, 6); }
  PacketBytes& pge(uint64_t ip) { return raw({0x71}).number(ip, 6); }
  PacketBytes& pgd(uint64_t ip) { return raw({0x61}).number(ip, 6); }
  PacketBytes& fup(uint64_t ip) { return raw({0x7d}).number(ip, 6); }
  PacketBytes& tip_no_ip() { return raw({0x0d}); }
  PacketBytes& pge_no_ip() { return raw({0x11}); }
  PacketBytes& pgd_no_ip() { return raw({0x01}); }
  PacketBytes& fup_no_ip() { return raw({0x1d}); }
  PacketBytes& tip_16(uint16_t ip) { return raw({0x2d}).number(ip, 2); }

  // Up to six branches, oldest first: 'T' or 'N'.
  PacketBytes& tnt(std::string_view branches) {
    int bits = 1;
    for (const char branch : branches) bits = bits << 1 | (branch == 'T' ? 1 : 0);
    return raw({bits << 1});
  }
  PacketBytes& mode_exec(int bits) { return raw({0x99, bits}); }  // 1: 64 bit, 2: 32 bit, 4: IF
  PacketBytes& mode_tsx(int bits) { return raw({0x99, 0x20 | bits}); }  // 1: in one, 2: aborted
  PacketBytes& pip(uint64_t cr3, bool non_root = false) {
    return raw({0x02, 0x43}).number(cr3 >> 5 << 1 | (non_root ? 1 : 0), 6);
  }
  PacketBytes& vmcs(uint64_t base) { return raw({0x02, 0xc8}).number(base >> 12, 5); }
  PacketBytes& mnt(uint64_t payload) { return raw({0x02, 0xc3, 0x88}).number(payload, 8); }

  PacketBytes& tsc(uint64_t value) { return raw({0x19}).number(value, 7); }
  PacketBytes& mtc(int ctc) { return raw({0x59, ctc}); }
  PacketBytes& tma(int ctc, int fast) {
    return raw({0x02, 0x73})
        .number(static_cast<uint64_t>(ctc), 2)
        .raw({0})
        .number(static_cast<uint64_t>(fast), 2);
  }
  PacketBytes& cbr(int ratio) { return raw({0x02, 0x03, ratio, 0}); }
  PacketBytes& cyc(uint32_t cycles) {  // of at most twelve bits
    if (cycles < 32) return raw({static_cast<int>(cycles << 3 | 3)});
    return raw({static_cast<int>((cycles & 31) << 3 | 7), static_cast<int>(cycles >> 5 << 1)});
  }

  PacketBytes& exstop(bool ip) { return raw({0x02, ip ? 0xe2 : 0x62}); }
  PacketBytes& mwait(uint32_t hints, uint32_t extensions) {
    return raw({0x02, 0xc2}).number(hints, 4).number(extensions, 4);
  }
  PacketBytes& pwre(int state, int sub_state, bool hardware) {
    return raw({0x02, 0x22, hardware ? 0x80 : 0, state << 4 | sub_state});
  }
  PacketBytes& pwrx(int last, int deepest, int reason) {
    return raw({0x02, 0xa2, last << 4 | deepest, reason, 0, 0, 0});
  }
  PacketBytes& ptw(uint64_t payload, bool ip) {
    return raw({0x02, 0x32 | (ip ? 0x80 : 0)}).number(payload, 8);
  }
  PacketBytes& cfe(int type, int vector = 0, bool ip = false) {
    return raw({0x02, 0x13, type | (ip ? 0x80 : 0), vector});
  }
  PacketBytes& evd(int type, uint64_t payload) {
    return raw({0x02, 0x53, type}).number(payload, 8);
  }
  PacketBytes& trig(int triggers) { return raw({0xd9, 0, triggers}); }
  PacketBytes& trig(int triggers, int count, bool ip = false) {
    return raw({0xd9, 0x40 | (ip ? 0x80 : 0), triggers}).number(static_cast<uint64_t>(count), 2);
  }
  PacketBytes& bbp(int type) { return raw({0x02, 0x63, type}); }  // items of eight bytes
  PacketBytes& bip(int id, uint64_t value) { return raw({id << 3 | 4}).number(value, 8); }
  PacketBytes& bep(bool ip) { return raw({0x02, ip ? 0xb3 : 0x33}); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace auxtrail::flow::test
