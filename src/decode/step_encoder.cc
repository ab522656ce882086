// Encoding executed instructions the way a processor would.
#include "decode/step_encoder.h"

#include <gtest/gtest.h>

namespace auxtrail::decode::test {
namespace {

BranchKind kind_of(StepClass cls) {
  switch (cls) {
    case StepClass::kConditional:
      return BranchKind::kConditional;
    case StepClass::kJump:
      return BranchKind::kJump;
    case StepClass::kCall:
      return BranchKind::kCall;
    case StepClass::kJumpIndirect:
      return BranchKind::kJumpIndirect;
    case StepClass::kCallIndirect:
      return BranchKind::kCallIndirect;
    case StepClass::kReturn:
      return BranchKind::kReturn;
    default:
      return BranchKind::kSyscall;
  }
}

constexpr size_t kCallStackDepth = 64;

}  // namespace

Truth truth_of(const Steps& steps, size_t first, size_t last) {
  Truth truth;
  truth.instructions = last - first;
  truth.final_ip = steps.ips[last];
  truth.branches.push_back({0, steps.ips[first], BranchKind::kTraceBegin, false});
  for (size_t i = first; i < last; ++i) {
    const uint64_t ip = steps.ips[i];
    const uint64_t next = steps.ips[i + 1];
    const StepInsn& insn = steps.insns.at(ip);
    if (insn.cls == StepClass::kOther) continue;
    if (insn.cls == StepClass::kConditional && next == ip + insn.length) {
      truth.not_taken.push_back(ip);
    } else if (insn.cls == StepClass::kSyscall) {
      truth.branches.push_back({ip, 0, BranchKind::kSyscall, true});
      truth.branches.push_back({0, next, BranchKind::kTraceBegin, false});
    } else {
      truth.branches.push_back({ip, next, kind_of(insn.cls), false});
    }
  }
  truth.branches.push_back({truth.final_ip, 0, BranchKind::kTraceEnd, true});
  return truth;
}

std::vector<std::byte> StepEncoder::encode(const Steps& steps, size_t first, size_t last) {
  const size_t psbs = options_.psb_every == 0 ? 0 : (last - first) / options_.psb_every;
  trace_.assign(64 + (last - first) * 10 + psbs * 64, std::byte{});
  pt_config config;
  pt_config_init(&config);
  config.begin = reinterpret_cast<uint8_t*>(trace_.data());
  config.end = config.begin + trace_.size();
  encoder_.reset(pt_alloc_encoder(&config));
  calls_.clear();
  header(steps.ips[first]);
  for (size_t i = first; i < last; ++i) {
    if (options_.psb_every != 0 && i > first && (i - first) % options_.psb_every == 0) {
      psb_plus(steps.ips[i]);
    }
    step(steps.ips[i], steps.insns.at(steps.ips[i]), steps.ips[i + 1]);
  }
  flush();
  put_ip(ppt_fup, steps.ips[last]);
  pt_packet end{};
  end.type = ppt_tip_pgd;
  put(end);
  uint64_t size = 0;
  pt_enc_get_offset(encoder_.get(), &size);
  encoder_.reset();
  trace_.resize((size + 7) / 8 * 8);  // PAD is zero
  return std::move(trace_);
}

void StepEncoder::header(uint64_t ip) {
  pt_packet packet{};
  last_ip_ = 0;
  put_plain(ppt_psb);
  packet.type = ppt_tsc;
  packet.payload.tsc.tsc = tsc_;
  put(packet);
  packet = {};
  packet.type = ppt_mode;
  packet.payload.mode.leaf = pt_mol_exec;
  packet.payload.mode.bits.exec = pt_set_exec_mode(ptem_64bit);
  if (options_.start_in_psb) {
    put(packet);
    put_ip(ppt_fup, ip);
    put_plain(ppt_psbend);
  } else {
    put_plain(ppt_psbend);
    put(packet);
    put_ip(ppt_tip_pge, ip);
  }
}

// Tracing is on and goes on; a PSB makes the processor forget its calls.
void StepEncoder::psb_plus(uint64_t ip) {
  flush();
  calls_.clear();
  last_ip_ = 0;
  put_plain(ppt_psb);
  pt_packet packet{};
  packet.type = ppt_tsc;
  packet.payload.tsc.tsc = ++tsc_;
  put(packet);
  packet = {};
  packet.type = ppt_mode;
  packet.payload.mode.leaf = pt_mol_exec;
  packet.payload.mode.bits.exec = pt_set_exec_mode(ptem_64bit);
  put(packet);
  put_ip(ppt_fup, ip);
  put_plain(ppt_psbend);
}

void StepEncoder::step(uint64_t ip, const StepInsn& insn, uint64_t next_ip) {
  switch (insn.cls) {
    case StepClass::kOther:
    case StepClass::kJump:
      break;
    case StepClass::kConditional:
      bit(next_ip != ip + insn.length);
      break;
    case StepClass::kCall:
    case StepClass::kCallIndirect:
      // SDM: a call to the next instruction only fetches the address and is not remembered.
      if (next_ip != ip + insn.length) calls_.push_back(ip + insn.length);
      if (calls_.size() > kCallStackDepth) calls_.pop_front();
      if (insn.cls == StepClass::kCall) break;
      flush();
      put_ip(ppt_tip, next_ip);
      break;
    case StepClass::kJumpIndirect:
      flush();
      put_ip(ppt_tip, next_ip);
      break;
    case StepClass::kReturn:
      step_return(next_ip);
      break;
    case StepClass::kSyscall: {
      flush();
      pt_packet off{};
      off.type = ppt_tip_pgd;
      put(off);
      put_ip(ppt_tip_pge, next_ip);
      break;
    }
  }
}

void StepEncoder::step_return(uint64_t next_ip) {
  if (options_.compress_returns && !calls_.empty() && calls_.back() == next_ip) {
    calls_.pop_back();
    bit(true);
    return;
  }
  if (!calls_.empty())
    options_.compress_returns = false;  // decoders differ in what they forget here
  flush();
  put_ip(ppt_tip, next_ip);
}

void StepEncoder::bit(bool taken) {
  constexpr uint8_t kShortBits = 6;
  constexpr uint8_t kLongBits = 47;
  tnt_ = tnt_ << 1 | (taken ? 1U : 0U);
  ++tnt_bits_;
  if (tnt_bits_ == (options_.long_tnt ? kLongBits : kShortBits)) flush();
}

void StepEncoder::flush() {
  if (tnt_bits_ == 0) return;
  pt_packet packet{};
  packet.type = options_.long_tnt ? ppt_tnt_64 : ppt_tnt_8;
  packet.payload.tnt = {tnt_bits_, tnt_};
  put(packet);
  tnt_ = 0;
  tnt_bits_ = 0;
}

void StepEncoder::put(const pt_packet& packet) {
  ASSERT_GT(pt_enc_next(encoder_.get(), &packet), 0) << "packet type " << packet.type;
}

void StepEncoder::put_ip(pt_packet_type type, uint64_t ip) {
  std::vector<pt_ip_compression> valid = {pt_ipc_full};
  if (ip >> 47 == 0) valid.push_back(pt_ipc_sext_48);
  if (ip >> 48 == last_ip_ >> 48) valid.push_back(pt_ipc_update_48);
  if (ip >> 32 == last_ip_ >> 32) valid.push_back(pt_ipc_update_32);
  if (ip >> 16 == last_ip_ >> 16) valid.push_back(pt_ipc_update_16);
  pt_packet packet{};
  packet.type = type;
  packet.payload.ip = {valid[random_() % valid.size()], ip};
  put(packet);
  last_ip_ = ip;
}

void StepEncoder::put_plain(pt_packet_type type) {
  pt_packet packet{};
  packet.type = type;
  put(packet);
}

}  // namespace auxtrail::decode::test
