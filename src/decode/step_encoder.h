// From executed instructions to Intel PT bytes and to the branches that decoding them must give:
// the test's side of the decoder's truth tests. Packets are written by libipt's encoder.
#pragma once

#include <intel-pt.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "decode/single_step.h"

namespace auxtrail::decode::test {

struct EncodeOptions {
  bool compress_returns = false;
  bool long_tnt = false;      // TNT packets of up to 47 bits
  bool start_in_psb = false;  // start by a FUP in PSB+ instead of TIP.PGE
  size_t psb_every = 0;       // steps between PSB+ in the middle of the flow; 0: none
  uint32_t seed = 1;          // which of the valid IP compressions are used
};

struct Truth {
  std::vector<Branch> branches;
  std::vector<uint64_t> not_taken;
  uint64_t instructions = 0;
  uint64_t final_ip = 0;
};

// The steps [first, last) as one window: it ends before the instruction at ips[last].
Truth truth_of(const Steps& steps, size_t first, size_t last);

class StepEncoder {
 public:
  explicit StepEncoder(const EncodeOptions& options) : options_(options), random_(options.seed) {}
  std::vector<std::byte> encode(const Steps& steps, size_t first, size_t last);

 private:
  void header(uint64_t ip);
  void psb_plus(uint64_t ip);
  void step(uint64_t ip, const StepInsn& insn, uint64_t next_ip);
  void step_return(uint64_t next_ip);
  void bit(bool taken);
  void flush();
  void put(const pt_packet& packet);
  void put_ip(pt_packet_type type, uint64_t ip);
  void put_plain(pt_packet_type type);

  EncodeOptions options_;
  std::mt19937 random_;
  std::vector<std::byte> trace_;
  std::unique_ptr<pt_encoder, decltype(&pt_free_encoder)> encoder_{nullptr, &pt_free_encoder};
  uint64_t last_ip_ = 0;
  uint64_t tnt_ = 0;
  uint8_t tnt_bits_ = 0;
  uint64_t tsc_ = 0x123456789a;
  std::deque<uint64_t> calls_;
};

}  // namespace auxtrail::decode::test
