// What libipt makes of one instruction, through its public interface: a trace that is on from the
// first instruction on, whose bytes a callback gives.
//
// libipt tells class and length of an instruction even where it fails to go on from it, and where a
// direct branch leads by the address of the next instruction: the trace has every condition true.
#pragma once

#include <gtest/gtest.h>
#include <intel-pt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "flow/instruction.h"

namespace auxtrail::flow::test {

struct LibiptInstruction {
  unsigned length = 0;
  pt_insn_class iclass = ptic_error;
  std::optional<int64_t> relative;  // of direct branches, taken
};

class LibiptInstructionOracle {
 public:
  explicit LibiptInstructionOracle(ExecMode mode) {
    add_psb_plus(mode);
    pt_config config;
    pt_config_init(&config);
    config.begin = trace_.data();
    config.end = trace_.data() + trace_.size();
    decoder_.reset(pt_insn_alloc_decoder(&config));
    EXPECT_EQ(pt_image_set_callback(pt_insn_get_image(decoder_.get()), &read, this), 0);
  }

  // Nothing if libipt finds no instruction. At most 15 bytes count.
  std::optional<LibiptInstruction> decode(std::span<const uint8_t> bytes) {
    bytes_ = bytes;
    int status = pt_insn_sync_set(decoder_.get(), 0);
    const auto first = next(status);
    if (first.iclass == ptic_error) return std::nullopt;
    LibiptInstruction result{first.size, first.iclass, std::nullopt};
    if (first.iclass != ptic_call && first.iclass != ptic_jump && first.iclass != ptic_cond_jump)
      return result;
    const auto second = next(status);  // fails if the first had an indirect target
    if (second.ip != 0) result.relative = static_cast<int64_t>(second.ip - kStart - first.size);
    return result;
  }

 private:
  static constexpr uint64_t kStart = 0x400000000000;

  void add(std::initializer_list<uint8_t> bytes) { trace_.insert(trace_.end(), bytes); }

  void add_psb_plus(ExecMode mode) {
    for (int i = 0; i < 8; ++i) add({0x02, 0x82});
    const uint8_t bits = mode == ExecMode::k64 ? 1 : mode == ExecMode::k32 ? 2 : 0;
    add({0x99, bits});
    add({0x7d});  // FUP with six bytes of IP, sign-extended
    for (int i = 0; i < 6; ++i) add({static_cast<uint8_t>(kStart >> (8 * i))});
    add({0x02, 0x23});  // PSBEND
    add({0x06});        // TNT: taken
  }

  pt_insn next(int& status) {
    while (status >= 0 && (status & pts_event_pending) != 0) {
      pt_event event;
      status = pt_insn_event(decoder_.get(), &event, sizeof event);
    }
    pt_insn insn{};
    if (status < 0) return insn;
    status = pt_insn_next(decoder_.get(), &insn, sizeof insn);
    return insn;
  }

  static int read(uint8_t* buffer, size_t size, const pt_asid*, uint64_t ip, void* context) {
    const auto& self = *static_cast<LibiptInstructionOracle*>(context);
    if (ip != kStart) {
      if (ip - kStart < pt_max_insn_size) return -pte_nomap;  // it is asked for more of it
      std::memset(buffer, 0x90, size);
      return static_cast<int>(size);
    }
    const size_t count = std::min(size, self.bytes_.size());
    std::memcpy(buffer, self.bytes_.data(), count);
    return static_cast<int>(count);
  }

  std::vector<uint8_t> trace_;
  std::unique_ptr<pt_insn_decoder, decltype(&pt_insn_free_decoder)> decoder_{nullptr,
                                                                             &pt_insn_free_decoder};
  std::span<const uint8_t> bytes_;
};

}  // namespace auxtrail::flow::test
