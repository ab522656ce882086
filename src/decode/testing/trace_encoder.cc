// Packets byte by byte.
#include "decode/testing/trace_encoder.h"

#include <utility>

namespace auxtrail::decode::testing {
namespace {

constexpr uint8_t kTip = 0x0d;
constexpr uint8_t kTipPge = 0x11;
constexpr uint8_t kTipPgd = 0x01;
constexpr uint8_t kFup = 0x1d;
constexpr size_t kCallStackDepth = 64;
constexpr size_t kMaxDeferred = 4;

bool fits_signed_48(uint64_t ip) {
  return static_cast<uint64_t>(static_cast<int64_t>(ip << 16) >> 16) == ip;
}

}  // namespace

TraceEncoder::TraceEncoder(const EncoderOptions& options, uint64_t seed)
    : options_(options),
      random_(seed),
      tsc_(random_.next() >> random_.between(9, 30)),
      ratio_(static_cast<uint8_t>(random_.between(8, 40))),
      last_mtc_(crystal_ticks() >> options.mtc_freq) {}

std::vector<std::byte> TraceEncoder::take() {
  flush();
  return std::exchange(trace_, {});
}

bool TraceEncoder::psb_due() const {
  return options_.psb_bytes != 0 && trace_.size() - last_psb_ >= options_.psb_bytes;
}

uint64_t TraceEncoder::crystal_ticks() const {
  return tsc_ / options_.cpuid_0x15_ebx * options_.cpuid_0x15_eax +
         tsc_ % options_.cpuid_0x15_ebx * options_.cpuid_0x15_eax / options_.cpuid_0x15_ebx;
}

void TraceEncoder::run(uint32_t cycles) {
  cycles_ += cycles;
  const uint64_t ticks = uint64_t{cycles} * options_.nom_freq + tsc_rest_;
  tsc_ += ticks / ratio_;
  tsc_rest_ = ticks % ratio_;
  if (options_.mtc) put_mtc();
  if (options_.pad && random_.one_in(64)) pad();
}

void TraceEncoder::put_mtc() {
  const uint64_t now = crystal_ticks() >> options_.mtc_freq;
  for (; last_mtc_ < now; ++last_mtc_) {
    put_cyc();
    put(0x59 | ((last_mtc_ + 1) & 0xff) << 8, 2);
  }
}

void TraceEncoder::put_cyc() {
  if (!options_.cyc || cycles_ == 0) return;
  uint64_t rest = std::exchange(cycles_, 0);
  uint8_t byte = static_cast<uint8_t>(0x03 | (rest & 0x1f) << 3 | (rest > 0x1f ? 0x04 : 0));
  put(byte, 1);
  for (rest >>= 5; rest != 0; rest >>= 7) {
    byte = static_cast<uint8_t>((rest & 0x7f) << 1 | (rest > 0x7f ? 1 : 0));
    put(byte, 1);
  }
}

void TraceEncoder::put_tsc() { put(0x19 | tsc_ << 8, 8); }

void TraceEncoder::put_tma() {
  const uint64_t ticks_per_ctc = options_.cpuid_0x15_ebx / options_.cpuid_0x15_eax;
  const uint64_t fast = tsc_ % (ticks_per_ctc == 0 ? 1 : ticks_per_ctc) & 0x1ff;
  put(0x7302, 2);
  put(crystal_ticks() & 0xffff, 2);
  put(0, 1);
  put(fast, 2);
}

void TraceEncoder::conditional(bool taken) {
  tnt_ = tnt_ << 1 | (taken ? 1U : 0U);
  ++tnt_bits_;
  constexpr uint8_t kShortBits = 6;
  constexpr uint8_t kLongBits = 47;
  const bool is_full = tnt_bits_ == (options_.long_tnt ? kLongBits : kShortBits);
  if (is_full || random_.one_in(64)) flush();
}

void TraceEncoder::call(uint64_t return_ip) {
  if (calls_.size() == kCallStackDepth) calls_.erase(calls_.begin());
  calls_.push_back(return_ip);
}

void TraceEncoder::indirect(uint64_t to) {
  if (options_.defer_tips && tnt_bits_ != 0 && deferred_.size() < kMaxDeferred) {
    deferred_.push_back(to);
    return;
  }
  tip(to);
}

void TraceEncoder::near_return(uint64_t to) {
  if (options_.compress_returns && !calls_.empty() && calls_.back() == to) {
    calls_.pop_back();
    conditional(true);
    return;
  }
  tip(to);
}

void TraceEncoder::flush() {
  if (tnt_bits_ != 0) put_tnt();
  for (const uint64_t ip : deferred_) put_ip(kTip, ip);
  deferred_.clear();
  written();
}

void TraceEncoder::put_tnt() {
  put_cyc();
  const uint64_t payload = uint64_t{1} << tnt_bits_ | tnt_;
  if (tnt_bits_ > 6 || (options_.long_tnt && random_.one_in(2))) {
    put(0xa302, 2);
    put(payload, 6);
  } else {
    put(payload << 1, 1);
  }
  tnt_ = 0;
  tnt_bits_ = 0;
}

void TraceEncoder::psb_plus(const EncoderState& state) {
  flush();
  put_cyc();
  last_psb_ = trace_.size();
  for (int i = 0; i < 2; ++i) put(0x8202820282028202, 8);
  last_ip_ = 0;
  calls_.clear();
  if (options_.tsc) put_tsc();
  if (options_.tsc && options_.mtc) put_tma();
  if (options_.cbr) put(0x0302 | uint64_t{ratio_} << 16, 4);
  if (options_.pip) pip(state.cr3, state.non_root);
  if (options_.pip && state.vmcs != 0) vmcs(state.vmcs);
  if (state.enabled) {
    const bool fup_first = random_.one_in(2);
    if (fup_first) fup(state.ip);
    mode_exec(state.mode);
    if (state.in_transaction || random_.one_in(3)) mode_tsx(state.in_transaction, false);
    if (!fup_first) fup(state.ip);
  }
  if (options_.mnt && random_.one_in(4)) mnt(random_.next());
  put(0x2302, 2);
  written();
}

void TraceEncoder::tip(uint64_t to) {
  flush();
  put_cyc();
  put_ip(kTip, to);
}

void TraceEncoder::fup(uint64_t ip) {
  flush();
  put_ip(kFup, ip);
}

void TraceEncoder::pge(uint64_t ip) {
  flush();
  put_cyc();
  calls_.clear();
  put_ip(kTipPge, ip);
}

void TraceEncoder::pgd(std::optional<uint64_t> to) {
  flush();
  put_cyc();
  if (to) {
    put_ip(kTipPgd, *to);
  } else {
    put(kTipPgd, 1);
  }
}

void TraceEncoder::mode_exec(flow::ExecMode mode) {
  flush();
  const unsigned bits = mode == flow::ExecMode::k64 ? 1 : mode == flow::ExecMode::k32 ? 2 : 0;
  put(0x99 | bits << 8, 2);
}

void TraceEncoder::mode_tsx(bool in_transaction, bool aborted) {
  flush();
  put(0x2099 | (in_transaction ? 0x100U : 0U) | (aborted ? 0x200U : 0U), 2);
}

void TraceEncoder::pip(uint64_t cr3, bool non_root) {
  flush();
  put(0x4302, 2);
  put(cr3 >> 5 << 1 | (non_root ? 1U : 0U), 6);
}

void TraceEncoder::vmcs(uint64_t base) {
  flush();
  put(0xc802, 2);
  put(base >> 12, 5);
}

void TraceEncoder::ptw(uint64_t payload, bool is_64, bool has_ip) {
  flush();
  put_cyc();
  put(0x1202 | (is_64 ? 0x2000U : 0U) | (has_ip ? 0x8000U : 0U), 2);
  put(payload, is_64 ? 8 : 4);
}

void TraceEncoder::mwait(uint32_t hints, uint32_t extensions) {
  flush();
  put(0xc202, 2);
  put(hints, 4);
  put(extensions, 4);
}

void TraceEncoder::exstop(bool has_ip) {
  flush();
  put(has_ip ? 0xe202 : 0x6202, 2);
}

void TraceEncoder::pwre(uint8_t state, uint8_t sub_state, bool by_hardware) {
  flush();
  put(0x2202, 2);
  put(by_hardware ? 0x80 : 0, 1);
  put(static_cast<uint64_t>(state << 4 | sub_state), 1);
}

void TraceEncoder::pwrx(uint8_t last, uint8_t deepest, uint8_t reason) {
  flush();
  put(0xa202, 2);
  put(static_cast<uint64_t>(last << 4 | deepest), 1);
  put(reason, 1);
  put(0, 3);
}

void TraceEncoder::mnt(uint64_t payload) {
  flush();
  put(0x88c302, 3);
  put(payload, 8);
}

void TraceEncoder::stop() {
  flush();
  put(0x8302, 2);
}

void TraceEncoder::cbr(uint8_t ratio) {
  flush();
  put_cyc();
  ratio_ = ratio;
  put(0x0302 | uint64_t{ratio_} << 16, 4);
}

void TraceEncoder::pad() { put(0, 1); }

void TraceEncoder::overflow(bool lose_pending) {
  if (!lose_pending) flush();
  tnt_ = 0;
  tnt_bits_ = 0;
  deferred_.clear();
  calls_.clear();
  last_ip_ = 0;
  cycles_ = 0;
  last_mtc_ = crystal_ticks() >> options_.mtc_freq;
  put(0xf302, 2);
}

void TraceEncoder::put(uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) trace_.push_back(static_cast<std::byte>(value >> (8 * i)));
}

void TraceEncoder::put_ip(uint8_t opcode, uint64_t ip) {
  struct Form {
    uint8_t ip_bytes;  // the packet's IPBytes field
    uint8_t size;
    bool valid;
  };
  const uint64_t changed = ip ^ last_ip_;
  const Form forms[] = {{1, 2, changed >> 16 == 0},
                        {2, 4, changed >> 32 == 0},
                        {3, 6, fits_signed_48(ip)},
                        {4, 6, changed >> 48 == 0},
                        {6, 8, true}};
  const Form* chosen = nullptr;
  for (const Form& form : forms) {
    if (form.valid && (chosen == nullptr || (!options_.shortest_ip && random_.one_in(2)))) {
      chosen = &form;
    }
  }
  put(static_cast<uint64_t>(chosen->ip_bytes << 5 | opcode), 1);
  put(ip, chosen->size);
  last_ip_ = ip;
}

}  // namespace auxtrail::decode::testing
