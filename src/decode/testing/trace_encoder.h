// TraceEncoder: writes Intel PT packets as a processor does, for a flow that it is told step by
// step.
//
// It keeps what the hardware keeps: conditional outcomes not written yet and TIPs deferred behind
// them, the stack of calls for compressed returns, the last IP, the clocks. Every choice that
// hardware may make either way is made by a seeded random number. Nothing of it is shared with the
// decoders or with the trace unit's writer. Reference: Intel SDM vol. 3, "Intel Processor Trace".
//
// Marks: the caller numbers the places of his flow (set_mark). written_mark() is the newest one
// that the packets written so far lead a decoder to; what came later is lost with an overflow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decode/testing/random.h"
#include "flow/event.h"

namespace auxtrail::decode::testing {

struct EncoderOptions {
  bool compress_returns = false;
  bool defer_tips = false;
  bool long_tnt = false;    // TNT packets of up to 47 bits
  bool shortest_ip = true;  // as hardware compresses IPs; else any form that fits
  uint32_t psb_bytes = 0;   // a PSB+ about every so many bytes; 0: only the first
  bool tsc = false;         // TSC, with TMA where MTC is on
  bool mtc = false;
  bool cyc = false;
  bool cbr = false;
  bool pip = false;    // PIP, VMCS
  bool power = false;  // MWAIT, EXSTOP, PWRE, PWRX
  bool ptw = false;
  bool ptw_ip = false;  // with FUP
  bool mnt = false;
  bool pad = false;
  uint8_t mtc_freq = 3;
  uint8_t nom_freq = 32;
  uint32_t cpuid_0x15_eax = 2;
  uint32_t cpuid_0x15_ebx = 176;
};

// What a PSB+ tells.
struct EncoderState {
  bool enabled = false;
  uint64_t ip = 0;
  flow::ExecMode mode = flow::ExecMode::k64;
  bool in_transaction = false;
  uint64_t cr3 = 0;
  bool non_root = false;
  uint64_t vmcs = 0;
};

class TraceEncoder {
 public:
  TraceEncoder(const EncoderOptions& options, uint64_t seed);

  [[nodiscard]] std::vector<std::byte> take();
  [[nodiscard]] size_t size_bytes() const { return trace_.size(); }
  [[nodiscard]] bool psb_due() const;

  void set_mark(uint64_t mark) { mark_ = mark; }
  [[nodiscard]] uint64_t written_mark() const { return written_mark_; }

  // Time goes on by so many core cycles.
  void run(uint32_t cycles);

  // The flow.
  void conditional(bool taken);
  void call(uint64_t return_ip);  // near, of any kind; before the TIP of an indirect one
  void indirect(uint64_t to);
  void near_return(uint64_t to);

  // Packets by name. All but pad() and those of time write first what waits to be written.
  void psb_plus(const EncoderState& state);
  void tip(uint64_t to);
  void fup(uint64_t ip);
  void pge(uint64_t ip);
  void pgd(std::optional<uint64_t> to);
  void mode_exec(flow::ExecMode mode);
  void mode_tsx(bool in_transaction, bool aborted);
  void pip(uint64_t cr3, bool non_root);
  void vmcs(uint64_t base);
  void ptw(uint64_t payload, bool is_64, bool has_ip);
  void mwait(uint32_t hints, uint32_t extensions);
  void exstop(bool has_ip);
  void pwre(uint8_t state, uint8_t sub_state, bool by_hardware);
  void pwrx(uint8_t last, uint8_t deepest, uint8_t reason);
  void mnt(uint64_t payload);
  void stop();
  void cbr(uint8_t ratio);
  void pad();
  // Packets were lost: what waits is written, or lost as well. `fup` follows if tracing is on.
  void overflow(bool lose_pending);

  // Writes what waits.
  void flush();

 private:
  void put(uint64_t value, size_t bytes);
  void put_ip(uint8_t opcode, uint64_t ip);
  void put_tnt();
  void put_cyc();
  void put_mtc();
  void put_tsc();
  void put_tma();
  void written() { written_mark_ = mark_; }
  [[nodiscard]] uint64_t crystal_ticks() const;

  EncoderOptions options_;
  Random random_;
  std::vector<std::byte> trace_;
  size_t last_psb_ = 0;
  uint64_t last_ip_ = 0;
  uint64_t tnt_ = 0;
  uint8_t tnt_bits_ = 0;
  std::vector<uint64_t> deferred_;
  std::vector<uint64_t> calls_;

  uint64_t tsc_;
  uint64_t tsc_rest_ = 0;  // in 1/ratio ticks
  uint64_t cycles_ = 0;    // since the last CYC
  uint8_t ratio_;
  uint64_t last_mtc_;

  uint64_t mark_ = 0;
  uint64_t written_mark_ = 0;
};

}  // namespace auxtrail::decode::testing
