// What the tests of the decoder share: where the traces are, memory dumps as code, a consumer that
// counts.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "decode/branch_decoder.h"

namespace auxtrail::decode::test {

inline std::filesystem::path data_directory() {
  const char* variable = std::getenv("AUXTRAIL_TEST_DATA");
  return variable != nullptr ? variable : AUXTRAIL_TEST_DATA_DEFAULT;
}

inline std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(content));
  return {bytes.begin(), bytes.end()};
}

// X.addr holds u64 page addresses; page i of X.dump lies at the i-th.
inline image::CodeMap page_dump(const std::filesystem::path& stem) {
  constexpr uint64_t kPageBytes = 4096;
  const auto addresses = read_file(stem.string() + ".addr");
  image::CodeMap map;
  map.id = 1;
  for (size_t page = 0; (page + 1) * 8 <= addresses.size(); ++page) {
    uint64_t address = 0;
    std::memcpy(&address, addresses.data() + page * 8, 8);
    map.sections.push_back({stem.string() + ".dump", page * kPageBytes, kPageBytes, address});
  }
  return map;
}

class CountingConsumer : public FlowConsumer {
 public:
  void on_branch(const Branch& branch) override {
    ++counts_[static_cast<size_t>(branch.kind)];
    branches.push_back(branch);
  }
  void on_not_taken(uint64_t ip) override { not_taken.push_back(ip); }
  void on_block(const Block& block) override { blocks.push_back(block); }
  void on_gap(const Gap& gap) override { gaps.push_back(gap); }
  void on_error(const DecodeError& error) override { errors.push_back(error); }

  [[nodiscard]] uint64_t count(BranchKind kind) const { return counts_[static_cast<size_t>(kind)]; }
  [[nodiscard]] std::string first_error_text() const {
    if (errors.empty()) return "no error";
    return fmt::format("{} at offset {:#x}, ip {:#x}", name(errors[0].cause), errors[0].offset,
                       errors[0].ip);
  }

  std::vector<Branch> branches;
  std::vector<uint64_t> not_taken;
  std::vector<Block> blocks;
  std::vector<Gap> gaps;
  std::vector<DecodeError> errors;

 private:
  std::array<uint64_t, static_cast<size_t>(BranchKind::kCount)> counts_{};
};

}  // namespace auxtrail::decode::test
