// The instruction decoder against libipt: whatever bytes, defined or not, both find the same
// length, class and target, or that there is no instruction.
//
// The libipt at hand (2.0) has faults and gaps that later ones have not; known_difference() lists
// them. AUXTRAIL_LONG_TESTS=1 runs fifty times as many random bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <random>
#include <string_view>

#include "flow/testing/libipt_instruction_oracle.h"
#include "flow/testing/zydis_instruction_oracle.h"

namespace auxtrail::flow {
namespace {

using Bytes = std::span<const uint8_t>;

pt_insn_class to_libipt(InsnClass cls) {
  switch (cls) {
    case InsnClass::kOther:
      return ptic_other;
    case InsnClass::kCall:
    case InsnClass::kCallIndirect:
      return ptic_call;
    case InsnClass::kReturn:
      return ptic_return;
    case InsnClass::kJump:
    case InsnClass::kJumpIndirect:
      return ptic_jump;
    case InsnClass::kCondJump:
      return ptic_cond_jump;
    case InsnClass::kFarCall:
      return ptic_far_call;
    case InsnClass::kFarReturn:
      return ptic_far_return;
    case InsnClass::kFarJump:
      return ptic_far_jump;
    case InsnClass::kPtwrite:
      return ptic_ptwrite;
  }
  return ptic_error;
}

// The bytes behind the legacy prefixes and REX.
Bytes without_prefixes(Bytes bytes, ExecMode mode) {
  static constexpr std::string_view kPrefixes = "\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3";
  const auto is_prefix = [mode](uint8_t byte) {
    return kPrefixes.find(static_cast<char>(byte)) != std::string_view::npos ||
           (mode == ExecMode::k64 && (byte & 0xf0) == 0x40);
  };
  return {std::find_if_not(bytes.begin(), bytes.end(), is_prefix), bytes.end()};
}

bool has_repeat_prefix(Bytes bytes) {
  return std::any_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0xf2 || b == 0xf3; });
}

std::string_view difference_in_0f(Bytes all, uint8_t second, uint8_t third) {
  switch (second) {
    case 0x01:
      // FRED came after libipt 2.0.
      return third == 0xca && has_repeat_prefix(all) ? "erets, eretu" : "";
    case 0xa6:
    case 0xa7:
      return "PadLock: libipt 2.0 does not know its ModRM";
    case 0xb9:
    case 0xff:
      return "ud1, ud0: libipt 2.0 does not know their ModRM";
    default:
      return "";
  }
}

std::string_view difference_in_vex(unsigned map, uint8_t opcode) {
  if (map == 0) return "VEX map 0, undefined: libipt 2.0 gives lengths";
  if (map > 3) return "VEX maps 4 to 7: libipt 2.0 has the first alone, and that with an immediate";
  if (map > 1) return "";
  if ((opcode & 0xf0) == 0x80)
    return "VEX 0f 80 to 8f, undefined: libipt 2.0 adds a branch's displacement";
  constexpr std::string_view kUndefined = "\x78\x7a\x7b\xa4\xa6\xa7\xac\xb9\xba\xff";
  if (kUndefined.find(static_cast<char>(opcode)) == std::string_view::npos) return "";
  return "VEX 0f, undefined opcodes: libipt 2.0 takes the legacy map for ModRM and immediate";
}

// In which known way the two may differ for these bytes; empty: in none.
std::string_view known_difference(Bytes all, ExecMode mode) {
  std::array<uint8_t, 16> b{};
  const Bytes rest = without_prefixes(all, mode);
  std::copy_n(rest.begin(), std::min(rest.size(), b.size()), b.begin());
  const bool is_64 = mode == ExecMode::k64;
  const bool is_vector = is_64 || b[1] >= 0xc0;
  const unsigned xop_map = b[1] & 0x1f;
  switch (b[0]) {
    case 0x0f:
      return difference_in_0f(all, b[1], b[2]);
    case 0x62:
      if (!is_vector || (b[1] & 7) == 2 || (b[1] & 7) == 3 || (b[1] & 7) == 6) return "";
      if ((b[1] & 7) == 1) return "EVEX 0f: libipt 2.0 takes the legacy map for who has a ModRM";
      return "EVEX maps 0, 4, 5 and 7: not in libipt 2.0";
    case 0x8f:
      return xop_map >= 8 && xop_map <= 10 ? "XOP: libipt takes it for pop" : "";
    case 0x9a:
    case 0xce:
    case 0xea:
      return is_64 ? "far call, into, far jump: undefined in 64-bit mode, libipt 2.0 forgets" : "";
    case 0xc4:
      return is_vector ? difference_in_vex(b[1] & 0x1f, b[3]) : "";
    case 0xc5:
      return is_vector ? difference_in_vex(1, b[2]) : "";
    case 0xc7:
      return (b[1] >> 3 & 7) == 7 && b[1] < 0xc0
                 ? "c7 /7 with memory, undefined: to libipt its displacement is xbegin's"
                 : "";
    case 0xd5:
      return is_64 ? "REX2: not in libipt 2.0" : "";
    default:
      return "";
  }
}

class InstructionLibipt : public testing::TestWithParam<ExecMode> {
 protected:
  void check(Bytes bytes) {
    Instruction ours;
    const bool ok = decode_instruction(bytes.data(), bytes.size(), GetParam(), ours);
    const auto theirs = libipt_.decode(bytes);
    if (agree(ok ? &ours : nullptr, theirs)) return void(++agreed_);
    const std::string_view known = known_difference(bytes, GetParam());
    if (!known.empty()) return void(++known_[known]);
    if (++failures_ > 20) return;
    ADD_FAILURE() << fmt::format("{}: {}; libipt {} bytes, class {}, relative {:#x}",
                                 test::hex(bytes), ok ? test::text(ours) : "nothing",
                                 theirs ? theirs->length : 0,
                                 static_cast<int>(theirs ? theirs->iclass : ptic_error),
                                 theirs && theirs->relative ? *theirs->relative : 0);
  }

  uint64_t agreed_ = 0;
  std::map<std::string_view, uint64_t> known_;

 private:
  static bool agree(const Instruction* ours, const std::optional<test::LibiptInstruction>& theirs) {
    if (ours == nullptr || !theirs) return (ours == nullptr) == !theirs;
    const bool is_direct = ours->cls == InsnClass::kCall || ours->cls == InsnClass::kJump ||
                           ours->cls == InsnClass::kCondJump;
    if (is_direct != theirs->relative.has_value()) return false;
    return ours->length == theirs->length && to_libipt(ours->cls) == theirs->iclass &&
           (!is_direct || ours->relative == *theirs->relative);
  }

  test::LibiptInstructionOracle libipt_{GetParam()};
  int failures_ = 0;
};

// A seventh of all values of the first three bytes; every value of any two of them.
TEST_P(InstructionLibipt, EveryThreeBytes) {
  std::array<uint8_t, 15> bytes;
  bytes.fill(0x91);
  for (unsigned i = 0; i < 1U << 24; i += 7) {
    bytes[0] = static_cast<uint8_t>(i >> 16);
    bytes[1] = static_cast<uint8_t>(i >> 8);
    bytes[2] = static_cast<uint8_t>(i);
    check(bytes);
  }
  EXPECT_GT(agreed_, 2'000'000);
}

TEST_P(InstructionLibipt, RandomBytes) {
  const char* wish = std::getenv("AUXTRAIL_LONG_TESTS");
  const bool is_long = wish != nullptr && *wish == '1';
  const uint64_t rounds = is_long ? 50'000'000 : 1'000'000;
  constexpr std::array<uint8_t, 16> kLeads = {0x66, 0x67, 0xf2, 0xf3, 0x2e, 0xf0, 0x48, 0x44,
                                              0x0f, 0x62, 0xc4, 0xc5, 0xd5, 0x8f, 0x0f, 0x0f};
  std::mt19937_64 random(23);
  for (uint64_t round = 0; round < rounds; ++round) {
    std::array<uint8_t, 16> bytes;
    for (size_t i = 0; i < bytes.size(); i += 8) {
      const uint64_t value = random();
      std::copy_n(reinterpret_cast<const uint8_t*>(&value), 8, bytes.data() + i);
    }
    const uint64_t choice = random();
    for (unsigned i = 0; i < choice % 4; ++i) bytes[i] = kLeads[choice >> (8 + 4 * i) & 15];
    // Also cut short.
    check(Bytes(bytes).first(choice >> 61 == 0 ? 1 + (choice >> 40) % 15 : 15));
  }
  EXPECT_GT(agreed_, rounds * 3 / 4);
  for (const auto& [what, count] : known_) std::printf("  %8lu %s\n", count, what.data());
}

std::string name_of(const testing::TestParamInfo<ExecMode>& info) {
  constexpr std::array kNames = {"Unknown", "In16", "In32", "In64"};
  return kNames[static_cast<size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Modes, InstructionLibipt,
                         testing::Values(ExecMode::k16, ExecMode::k32, ExecMode::k64), name_of);

}  // namespace
}  // namespace auxtrail::flow
