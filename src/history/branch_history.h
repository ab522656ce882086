// BranchHistory: the branches that led up to a sample, newest last.
//
// A FlowConsumer: hand it to BranchDecoder::decode() and read it afterwards. Reused from sample to
// sample, so nothing is allocated once it has grown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "decode/branch_decoder.h"

namespace auxtrail::history {

class BranchHistory : public decode::FlowConsumer {
 public:
  // What to keep beside the branches.
  struct Options {
    bool blocks = false;  // executed blocks, for weighting lines and instructions
    bool errors = true;   // the first kMaxErrors errors with offset and ip
  };
  static constexpr size_t kMaxErrors = 64;

  BranchHistory() = default;
  explicit BranchHistory(Options options) : options_(options) {}

  // Forgets everything; keeps the memory.
  void clear();

  // All of them, oldest first, with the begin and end markers.
  [[nodiscard]] std::span<const decode::Branch> branches() const { return branches_; }
  // The newest `count`, oldest of them first: a virtual LBR.
  [[nodiscard]] std::span<const decode::Branch> last(size_t count) const;
  [[nodiscard]] std::span<const decode::Block> blocks() const { return blocks_; }
  [[nodiscard]] std::span<const decode::DecodeError> errors() const { return errors_; }

  [[nodiscard]] unsigned wants() const override {
    return decode::kWantsBranches | (options_.blocks ? decode::kWantsBlocks : 0U);
  }
  void on_branches(std::span<const decode::Branch> branches) override {
    branches_.insert(branches_.end(), branches.begin(), branches.end());
  }
  void on_branch(const decode::Branch& branch) override { branches_.push_back(branch); }
  void on_block(const decode::Block& block) override {
    if (options_.blocks) blocks_.push_back(block);
  }
  void on_error(const decode::DecodeError& error) override {
    if (options_.errors && errors_.size() < kMaxErrors) errors_.push_back(error);
  }

 private:
  Options options_;
  std::vector<decode::Branch> branches_;
  std::vector<decode::Block> blocks_;
  std::vector<decode::DecodeError> errors_;
};

// perf 6.1's brstack: "0xFROM/0xTO/-/-/-/0/ " entries, newest first, space between. The flags are
// unknown, hence "-". The newest trace end marker is left out, as perf does.
std::string brstack(std::span<const decode::Branch> branches, size_t max_entries = 32);

}  // namespace auxtrail::history
