// PacketWriter: encodes Intel PT packets into a buffer, as a processor does into its output region.
//
// Runs inside the traced program: no allocation, no libc, no exceptions; every method is
// async-signal-safe. The caller keeps enough room (see kMax... below); the writer checks nothing on
// its own because it sits on the path that drains every traced branch, and for the same reason it
// stores whole words: up to kSlackBytes behind the last packet may be overwritten. IP compression
// follows the last IP of this writer, which psb() resets, exactly as a decoder's does. Reference:
// Intel SDM vol. 3, "Intel Processor Trace", packet definitions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace auxtrail::pt {

class PacketWriter {
 public:
  static constexpr size_t kMaxHeaderBytes =
      1 + 16 + 8 + 4 + 2 + 2 + 9;  // what begin() or psb_plus() writes
  static constexpr size_t kMaxEndBytes =
      9 + 8 + 1;                             // pending TNT bits, FUP, TIP.PGD: what end() writes
  static constexpr size_t kMaxTipBytes = 7;  // IPBytes 3 (48 bits, sign extended) or fewer
  static constexpr size_t kSlackBytes = 8;
  static constexpr uint32_t kTntBits = 42;  // pending outcomes are flushed at this many
  static constexpr uint32_t kMaxTntBits = 63 - (kTntBits - 1);  // that may be appended at once

  PacketWriter() = default;
  explicit PacketWriter(uint8_t* buffer) : at_(buffer), start_(buffer) {}

  [[nodiscard]] size_t size_bytes() const { return static_cast<size_t>(at_ - start_); }
  [[nodiscard]] const uint8_t* position() const { return at_; }
  // Goes on at another place, as if it followed: outcomes not written yet and the last IP stay.
  void continue_in(uint8_t* buffer) { at_ = start_ = buffer; }

  void psb() {
    for (int i = 0; i < 8; ++i) put16(0x8202);
    last_ip_ = 0;
  }
  void pad() { *at_++ = 0x00; }
  void psbend() { put16(0x2302); }
  void tsc(uint64_t value) { put64(0x19 | value << 8); }  // 7 payload bytes
  void cbr(uint8_t ratio) { put32(0x0302u | static_cast<uint32_t>(ratio) << 16); }
  void mode_exec_64() { put16(0x0199); }
  void tip(uint64_t ip) { ip_packet(0x0d, ip); }
  void tip_pge(uint64_t ip) { ip_packet(0x11, ip); }
  void fup(uint64_t ip) { ip_packet(0x1d, ip); }
  void tip_pgd_no_ip() { *at_++ = 0x01; }
  // The branch that ends the trace, and where it leads: to where nothing is traced.
  void tip_pgd(uint64_t ip) { ip_packet(0x01, ip); }
  void trace_stop() { put16(0x8302); }
  // Packets were lost. The next IP is a full one, whatever a decoder takes the last IP for.
  void overflow() {
    put16(0xf302);
    last_ip_ = ~uint64_t{0};
  }

  // Appends `count` conditional outcomes (count <= kMaxTntBits), oldest in the highest of the low
  // `count` bits, taken = 1. They leave as TNT packets of six bits, seven at a time.
  void tnt(uint32_t bits, uint32_t count) {
    pending_ = pending_ << count | bits;
    if (pending_ >> kTntBits != 0) flush_full();
  }
  // Few are pending as a rule; whether any are could not be foreseen, so that is not branched on.
  void flush_tnt() {
    if (pending_ >= 1 << 7) flush_all_but_last();
    *at_ = static_cast<uint8_t>(pending_ << 1);
    at_ += pending_ != kNoOutcomes ? 1 : 0;
    pending_ = kNoOutcomes;
  }

  // Packets made before, up to eight bytes of them. The last one is a TIP to `ip`; no outcomes
  // wait.
  void packets(uint64_t bytes, size_t count, uint64_t ip) {
    put_at(bytes);
    at_ += count;
    last_ip_ = ip;
  }

  // The packets that make a window decodable on its own: a PSB+ that says "tracing is off", then
  // TIP.PGE at the window's first instruction.
  void begin(uint64_t start_ip, uint64_t tsc_value) {
    psb();
    tsc(tsc_value);
    cbr(kNominalRatio);
    psbend();
    mode_exec_64();
    tip_pge(start_ip);
  }
  // A PSB+ within a trace, which goes on at `ip`.
  void psb_plus(uint64_t ip, uint64_t tsc_value) {
    flush_tnt();
    // An IP before may end like a PSB, and decoders that look for one would find it too early.
    pad();
    psb();
    tsc(tsc_value);
    cbr(kNominalRatio);
    mode_exec_64();
    fup(ip);
    psbend();
  }
  // A whole sample that only states the position: a PSB+ with tracing on at `ip`, and off again
  // there. An empty AUX sample would make Linux perf show the previous sample's branches.
  void position_only(uint64_t ip, uint64_t tsc_value) {
    psb_plus(ip, tsc_value);
    fup(ip);
    tip_pgd_no_ip();
  }
  // Brings a decoder exactly to `final_ip`: an asynchronous event there, tracing off.
  void end(uint64_t final_ip) {
    flush_tnt();
    fup(final_ip);
    tip_pgd_no_ip();
  }

  static constexpr uint8_t kNominalRatio = 10;

 private:
  // Pending outcomes have a leading 1 bit, as a TNT packet's have.
  static constexpr uint64_t kNoOutcomes = 1;

  // The low 48 bits as eight TNT packets, the highest six first: 48 -> 2 x 24 -> 4 x 12 -> 8 x 6.
  static uint64_t tnt_packets(uint64_t groups) {
    groups = (groups & 0xffffff000000) << 8 | (groups & 0x000000ffffff);
    groups = (groups & 0x00fff00000fff000) << 4 | (groups & 0x00000fff00000fff);
    groups = (groups & 0x0fc00fc00fc00fc0) << 2 | (groups & 0x003f003f003f003f);
    return __builtin_bswap64(groups << 1 | 0x8080808080808080);
  }
  [[nodiscard]] uint32_t pending_count() const {
    return static_cast<uint32_t>(63 - __builtin_clzll(pending_));
  }
  // The oldest 6 * `packets` outcomes leave, one or more packets of them.
  void put_packets(uint32_t packets, uint32_t rest) {
    put_at(tnt_packets(pending_ >> rest << (48 - 6 * packets)));
    at_ += packets;
    const uint64_t leading = uint64_t{1} << rest;
    pending_ = leading | (pending_ & (leading - 1));
  }
  void flush_full() { put_packets(kTntBits / 6, pending_count() - kTntBits); }
  // One to six of more than six stay.
  void flush_all_but_last() {
    const uint32_t count = pending_count();
    const uint32_t packets = (count - 1) / 6;
    put_packets(packets, count - 6 * packets);
  }

  void ip_packet(uint8_t opcode, uint64_t ip) {
    const uint64_t changed = ip ^ last_ip_;
    last_ip_ = ip;
    // IPBytes 1, 2 or 3: two, four or six bytes of the IP. Sums, for a branch could not be
    // foreseen.
    const uint32_t ip_bytes = 1u + (changed >= uint64_t{1} << 16) + (changed >= uint64_t{1} << 32);
    put_at(ip << 8 | ip_bytes << 5 | opcode);
    at_ += 1 + 2 * ip_bytes;
  }

  void put_at(uint64_t value) { __builtin_memcpy(at_, &value, sizeof value); }
  void put16(uint16_t value) { put(value); }
  void put32(uint32_t value) { put(value); }
  void put64(uint64_t value) { put(value); }
  template <class T>
  void put(T value) {
    __builtin_memcpy(at_, &value, sizeof(T));
    at_ += sizeof(T);
  }

  uint8_t* at_ = nullptr;
  uint8_t* start_ = nullptr;
  uint64_t last_ip_ = 0;
  uint64_t pending_ = kNoOutcomes;
};

}  // namespace auxtrail::pt
