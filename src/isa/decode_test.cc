// The decoder against Zydis: whatever it accepts, Zydis must accept and describe alike. Exhaustive
// over opcodes, prefixes and ModRM bytes, then over random bytes. AUXTRAIL_LONG_TESTS=1 runs the
// long form.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "isa/insn.h"
#include "isa/zydis_oracle.h"

namespace auxtrail::isa {
namespace {

bool long_tests() {
  const char* value = std::getenv("AUXTRAIL_LONG_TESTS");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

// Compares instruction after instruction, keeps the first few differences and counts.
class Differential {
 public:
  void check(const uint8_t* code, size_t size) {
    ++total_;
    const Insn insn = decode(code, size);
    if (insn.cls == InsnClass::kInvalid && insn.length == 0) return;
    ++accepted_;
    const std::string text = oracle_.difference(insn, code, size);
    if (!text.empty() && ++differences_ <= 40) ADD_FAILURE() << text;
  }
  void finish(uint64_t least_accepted) const {
    EXPECT_EQ(differences_, 0u);
    EXPECT_GE(accepted_, least_accepted) << "the comparison has lost its subject";
    testing::Test::RecordProperty("total", std::to_string(total_));
    testing::Test::RecordProperty("accepted", std::to_string(accepted_));
    std::printf("             %lu byte strings, %lu accepted\n", total_, accepted_);
  }

 private:
  ZydisOracle oracle_;
  uint64_t total_ = 0, accepted_ = 0, differences_ = 0;
};

using Bytes = std::vector<uint8_t>;

// `head`, opcode, each ModRM (with several SIB bytes where one follows), then bytes that make every
// displacement and immediate distinguishable.
void check_all_modrm(Differential& diff, const Bytes& head, uint8_t opcode) {
  std::array<uint8_t, 32> code;
  for (size_t i = 0; i < code.size(); ++i) code[i] = static_cast<uint8_t>(0x81 + i * 3);
  std::copy(head.begin(), head.end(), code.begin());
  const size_t at = head.size();
  code[at] = opcode;
  for (unsigned modrm = 0; modrm < 256; ++modrm) {
    code[at + 1] = static_cast<uint8_t>(modrm);
    const bool sib = modrm < 0xC0 && (modrm & 7) == 4;
    for (const unsigned byte : {0x25, 0x64, 0xF3, 0x88}) {
      code[at + 2] = static_cast<uint8_t>(byte);
      diff.check(code.data(), code.size());
      if (!sib) break;
    }
  }
}

std::vector<Bytes> legacy_prefixes() {
  std::vector<Bytes> sets = {{},
                             {0x66},
                             {0xF2},
                             {0xF3},
                             {0x66, 0xF2},
                             {0xF3, 0x66},
                             {0x67},
                             {0xF0},
                             {0x64},
                             {0x2E},
                             {0x3E},
                             {0x66, 0x67},
                             {0xF0, 0x66},
                             {0xF2, 0xF0},
                             {0xF3, 0x67, 0x65},
                             {0x66, 0x66, 0x2E},
                             {0xF2, 0xF3},
                             {0x64, 0x65}};
  const size_t plain = sets.size();
  for (const unsigned rex : {0x40, 0x41, 0x42, 0x44, 0x48, 0x4F}) {
    for (size_t i = 0; i < plain; ++i) {
      sets.push_back(sets[i]);
      sets.back().push_back(static_cast<uint8_t>(rex));
    }
  }
  sets.push_back({0x48, 0x66});
  sets.push_back({0x48, 0x2E});
  return sets;
}

TEST(DecodeDifferential, LegacyMaps) {
  Differential diff;
  const std::vector<Bytes> escapes = {{}, {0x0F}, {0x0F, 0x38}, {0x0F, 0x3A}};
  for (const Bytes& prefix : legacy_prefixes()) {
    for (const Bytes& escape : escapes) {
      Bytes head = prefix;
      head.insert(head.end(), escape.begin(), escape.end());
      for (unsigned op = 0; op < 256; ++op) check_all_modrm(diff, head, static_cast<uint8_t>(op));
    }
  }
  diff.finish(1'000'000);
}

// VEX and XOP: every map number, W, L, pp and a choice of R X B vvvv.
TEST(DecodeDifferential, VexAndXop) {
  Differential diff;
  const std::vector<uint8_t> vvvvs =
      long_tests() ? std::vector<uint8_t>{15, 14, 9, 7, 0} : std::vector<uint8_t>{15, 6};
  const std::vector<uint8_t> rxbs =
      long_tests() ? std::vector<uint8_t>{7, 6, 5, 3, 0} : std::vector<uint8_t>{7, 2};
  for (const uint8_t vvvv : vvvvs) {
    for (unsigned wlpp = 0; wlpp < 16; ++wlpp) {
      const auto last = static_cast<uint8_t>(((wlpp & 8) << 4) | (vvvv << 3) | (wlpp & 7));
      for (unsigned op = 0; op < 256; ++op) {
        const auto opcode = static_cast<uint8_t>(op);
        check_all_modrm(diff, {0xC5, last}, opcode);
        for (const uint8_t rxb : rxbs) {
          for (unsigned map = 0; map < 12; ++map) {
            const auto first = static_cast<uint8_t>((rxb << 5) | map);
            if (map < 5) check_all_modrm(diff, {0xC4, first, last}, opcode);
            if (map > 6) check_all_modrm(diff, {0x8F, first, last}, opcode);
          }
        }
      }
    }
  }
  diff.finish(1'000'000);
}

TEST(DecodeDifferential, Evex) {
  Differential diff;
  std::mt19937_64 random(20240607);
  const unsigned rounds = long_tests() ? 12 : 1;
  for (unsigned round = 0; round < rounds; ++round) {
    for (unsigned map = 0; map < 8; ++map) {
      for (unsigned op = 0; op < 256; ++op) {
        for (unsigned wpp = 0; wpp < 8; ++wpp) {
          const uint64_t bits = random();
          for (unsigned zlb = 0; zlb < 16; ++zlb) {
            const unsigned rxb = (bits & 1) != 0 ? 0xF0 : ((bits >> 8) & 0xF0);
            const unsigned vvvv = (bits & 2) != 0 ? 15 : (bits >> 16) & 15;
            const unsigned v2 = (bits & 4) != 0 ? 8 : (bits >> 24) & 8;
            const unsigned aaa = (bits & 8) != 0 ? 0 : (bits >> 32) & 7;
            check_all_modrm(diff,
                            {0x62, static_cast<uint8_t>(rxb | map),
                             static_cast<uint8_t>(((wpp & 4) << 5) | (vvvv << 3) | 4 | (wpp & 3)),
                             static_cast<uint8_t>((zlb << 4) | v2 | aaa)},
                            static_cast<uint8_t>(op));
          }
        }
      }
    }
  }
  diff.finish(1'000'000);
}

TEST(DecodeDifferential, RandomBytes) {
  Differential diff;
  std::mt19937_64 random(1);
  std::array<uint8_t, 16> code;
  const unsigned count = long_tests() ? 100'000'000 : 4'000'000;
  static constexpr uint8_t kStarts[] = {0xC4, 0xC5, 0x62, 0x0F, 0x66, 0xF2, 0xF3, 0x48};
  for (unsigned i = 0; i < count; ++i) {
    const uint64_t low = random(), high = random();
    std::memcpy(code.data(), &low, 8);
    std::memcpy(code.data() + 8, &high, 8);
    if (i & 1) code[0] = kStarts[(i >> 1) & 7];
    diff.check(code.data(), code.size());
  }
  diff.finish(count / 4);
}

}  // namespace
}  // namespace auxtrail::isa
