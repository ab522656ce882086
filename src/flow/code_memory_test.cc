// CodeMemory against a byte-by-byte model: a map from address to byte, where the later one wins.
#include "flow/code_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <random>

namespace auxtrail::flow {
namespace {

std::vector<uint8_t> counting_bytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

TEST(CodeMemory, FindsTheSectionOfAnAddressAndNothingBeside) {
  const auto bytes = counting_bytes(16);
  CodeMemory memory;
  memory.add(0x1000, bytes);
  memory.add(0x1010, bytes);
  EXPECT_EQ(memory.find(0xfff), nullptr);
  ASSERT_NE(memory.find(0x1000), nullptr);
  EXPECT_EQ(memory.find(0x100f)->address, 0x1000);
  EXPECT_EQ(memory.find(0x1010)->address, 0x1010);
  EXPECT_EQ(memory.find(0x1020), nullptr);
}

TEST(CodeMemory, ReadsAcrossAdjoiningSectionsUpToAHole) {
  const auto bytes = counting_bytes(16);
  CodeMemory memory;
  memory.add(0x1000, bytes);
  memory.add(0x1010, bytes);
  std::array<uint8_t, 15> to{};
  EXPECT_EQ(memory.read(0x100e, to.data(), to.size()), 15);
  EXPECT_EQ(to[1], 15);
  EXPECT_EQ(to[2], 0);
  EXPECT_EQ(memory.read(0x101e, to.data(), to.size()), 2);
  EXPECT_EQ(memory.read(0x1020, to.data(), to.size()), 0);
}

TEST(CodeMemory, AnEmptySectionIsIgnored) {
  CodeMemory memory;
  memory.add(0x1000, {});
  EXPECT_TRUE(memory.sections().empty());
}

TEST(CodeMemory, TheEndOfTheAddressSpaceCutsASection) {
  const auto bytes = counting_bytes(16);
  constexpr uint64_t kLast = std::numeric_limits<uint64_t>::max();
  CodeMemory memory;
  memory.add(kLast - 3, bytes);
  ASSERT_EQ(memory.sections().size(), 1);
  EXPECT_EQ(memory.sections()[0].bytes.size(), 4);
  ASSERT_NE(memory.find(kLast), nullptr);
  EXPECT_EQ(memory.find(0), nullptr);
  std::array<uint8_t, 15> to{};
  EXPECT_EQ(memory.read(kLast - 1, to.data(), to.size()), 2);
  memory.add(0, bytes);
  EXPECT_EQ(memory.read(kLast - 1, to.data(), to.size()), 2) << "addresses do not wrap";
}

TEST(CodeMemory, LaterSectionsHideWhatTheyOverlapAsInAModel) {
  constexpr uint64_t kSpace = 200;
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    CodeMemory memory;
    std::map<uint64_t, uint8_t> model;
    std::vector<std::vector<uint8_t>> storage;
    storage.reserve(12);
    for (int added = 0; added < 12; ++added) {
      const uint64_t address = random() % kSpace;
      storage.emplace_back(1 + random() % 40, static_cast<uint8_t>(added + 1));
      memory.add(address, storage.back());
      for (size_t i = 0; i < storage.back().size(); ++i) model[address + i] = storage.back()[i];
    }
    uint64_t behind = 0;
    for (const CodeSection& section : memory.sections()) {
      ASSERT_GE(section.address, behind) << "sorted, without overlaps";
      behind = section.address + section.bytes.size();
    }
    for (uint64_t address = 0; address < kSpace + 50; ++address) {
      uint8_t byte = 0;
      const size_t count = memory.read(address, &byte, 1);
      ASSERT_EQ(count, model.count(address)) << address;
      if (count == 1) {
        ASSERT_EQ(byte, model[address]) << address;
      }
    }
  }
}

}  // namespace
}  // namespace auxtrail::flow
