// The instruction decoder against Zydis: every opcode of every map under many prefixes and every
// ModRM, and random bytes.
//
// AUXTRAIL_LONG_TESTS=1 runs fifty times as many random ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>
#include <vector>

#include "flow/zydis_instruction_oracle.h"

namespace auxtrail::flow {
namespace {

using Bytes = std::vector<uint8_t>;

uint64_t random_rounds() {
  const char* value = std::getenv("AUXTRAIL_LONG_TESTS");
  return value != nullptr && *value == '1' ? 50'000'000 : 1'000'000;
}

Bytes to_bytes(std::initializer_list<unsigned> values) {
  Bytes bytes;
  for (const unsigned value : values) bytes.push_back(static_cast<uint8_t>(value));
  return bytes;
}

class InstructionZydis : public testing::TestWithParam<ExecMode> {
 protected:
  // Fails at most a few times.
  void check(std::span<const uint8_t> bytes) {
    const std::string text = oracle_.difference(bytes);
    if (!text.empty() && ++failures_ <= 20) ADD_FAILURE() << text;
    Instruction insn;
    found_ += decode_instruction(bytes.data(), bytes.size(), GetParam(), insn);
  }

  // Every `step`th ModRM behind `head`, with SIBs that have a base and that have none.
  void check_modrms(Bytes head, unsigned step) {
    const size_t at = head.size();
    head.resize(at + 15, 0x92);
    for (unsigned modrm = 0; modrm < 256; modrm += step) {
      head[at] = static_cast<uint8_t>(modrm);
      head[at + 1] = 0x24;
      check(head);
      if ((modrm & 7) != 4) continue;
      head[at + 1] = 0x65;
      check(head);
    }
  }

  test::ZydisInstructionOracle oracle_{GetParam()};
  int failures_ = 0;
  uint64_t found_ = 0;
};

const std::vector<Bytes> kPrefixes = {
    {},     {0x66},       {0x67},       {0xf2},       {0xf3},       {0x2e},
    {0xf0}, {0x66, 0x67}, {0x66, 0xf2}, {0x66, 0xf3}, {0xf3, 0x67}, {0x48},
    {0x44}, {0x66, 0x48}, {0x48, 0x66}, {0xf3, 0x4f}, {0x67, 0x41}, {0xf2, 0x66, 0x48}};

TEST_P(InstructionZydis, EveryOpcodeOfTheLegacyMaps) {
  for (const Bytes& prefix : kPrefixes) {
    for (const Bytes& escape : {Bytes{}, Bytes{0x0f}, Bytes{0x0f, 0x38}, Bytes{0x0f, 0x3a}}) {
      for (unsigned opcode = 0; opcode < 256; ++opcode) {
        Bytes head = prefix;
        head.insert(head.end(), escape.begin(), escape.end());
        head.push_back(static_cast<uint8_t>(opcode));
        check_modrms(head, 1);
      }
    }
  }
  EXPECT_GT(found_, 1'000'000);
}

TEST_P(InstructionZydis, EveryOpcodeOfTheVexMaps) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    for (const unsigned second : {0xf8U, 0xf9U, 0xfaU, 0xfbU, 0xfcU, 0x78U, 0xc1U}) {
      check_modrms(to_bytes({0xc5, second, opcode}), 3);
    }
    for (unsigned map = 0; map < 12; ++map) {
      for (unsigned pp = 0; pp < 16; ++pp) {  // pp, L, W
        check_modrms(to_bytes({0xc4, 0xe0 | map, 0x78 | (pp & 7) | (pp & 8) << 4, opcode}), 7);
      }
    }
  }
  EXPECT_GT(found_, 500'000);
}

TEST_P(InstructionZydis, EveryOpcodeOfTheXopMaps) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    for (unsigned map = 8; map < 12; ++map) {
      for (const unsigned last : {0x78U, 0xf8U, 0x7cU}) {
        check_modrms(to_bytes({0x8f, 0xe0 | map, last, opcode}), 3);
      }
    }
  }
  EXPECT_GT(found_, 100'000);
}

TEST_P(InstructionZydis, EveryOpcodeOfTheEvexMaps) {
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    for (unsigned map = 0; map < 8; ++map) {
      for (unsigned pp = 0; pp < 8; ++pp) {  // pp, W
        for (const unsigned last : {0x08U, 0x48U, 0x28U, 0x59U}) {
          const unsigned second = 0x7c | (pp & 3) | (pp & 4) << 5;
          check_modrms(to_bytes({0x62, 0xf0 | map, second, last, opcode}), 7);
        }
      }
    }
  }
  EXPECT_GT(found_, 500'000);
}

TEST_P(InstructionZydis, RandomBytes) {
  constexpr std::array<uint8_t, 16> kLeads = {0x66, 0x67, 0xf2, 0xf3, 0x2e, 0xf0, 0x48, 0x44,
                                              0x0f, 0x62, 0xc4, 0xc5, 0xd5, 0x8f, 0x0f, 0x0f};
  std::mt19937_64 random(17);
  for (uint64_t round = 0; round < random_rounds(); ++round) {
    std::array<uint8_t, 24> bytes;
    for (size_t i = 0; i < bytes.size(); i += 8) {
      const uint64_t value = random();
      std::copy_n(reinterpret_cast<const uint8_t*>(&value), 8, bytes.data() + i);
    }
    const uint64_t choice = random();
    for (unsigned i = 0; i < choice % 4; ++i) bytes[i] = kLeads[choice >> (8 + 4 * i) & 15];
    check(std::span(bytes).first(choice >> 60 == 0 ? 1 + (choice >> 40 & 15) : bytes.size()));
  }
  EXPECT_GT(found_, random_rounds() / 2);
}

std::string name_of(const testing::TestParamInfo<ExecMode>& info) {
  constexpr std::array kNames = {"Unknown", "In16", "In32", "In64"};
  return kNames[static_cast<size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Modes, InstructionZydis,
                         testing::Values(ExecMode::k16, ExecMode::k32, ExecMode::k64), name_of);

}  // namespace
}  // namespace auxtrail::flow
