// Traces of random packets of all kinds: libipt's encoder writes those that it knows.
#pragma once

#include <intel-pt.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace auxtrail::pt::testing {

using Trace = std::vector<std::byte>;

class RandomTrace {
 public:
  explicit RandomTrace(uint32_t seed) : random_(seed) {}

  // What libipt 2.0.5 knows.
  Trace make(size_t packets);
  // Also the packets that it does not know, encoded after the SDM.
  Trace make_with_newer(size_t packets);
  // Bytes in which errata and extended opcodes are frequent.
  Trace make_bytes(size_t size_bytes);

  uint64_t number(uint64_t bits = 64) { return random_() >> (64 - bits); }

 private:
  pt_packet make_packet();
  pt_packet_ip ip();
  pt_packet_mode mode();
  pt_packet_tnt tnt(uint8_t bits) { return {bits, number(bits)}; }
  void put_newer(Trace& trace);

  std::mt19937_64 random_;
};

}  // namespace auxtrail::pt::testing
