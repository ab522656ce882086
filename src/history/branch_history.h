// BranchHistory: the branches that led up to a sample, newest last.
//
// A FlowConsumer: hand it to BranchDecoder::decode() and read it afterwards. Reused from sample to
// sample, so nothing is allocated once it has grown. Who needs the newest branches only takes a
// VirtualLbr (virtual_lbr.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
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
    bool times = false;   // when each branch was
    size_t newest = std::numeric_limits<size_t>::max();  // so many branches; the older ones go
  };
  static constexpr size_t kMaxErrors = 64;

  BranchHistory() = default;
  explicit BranchHistory(Options options) : options_(options) {}

  // Forgets everything; keeps the memory.
  void clear();

  // All of them, oldest first, with the begin and end markers.
  [[nodiscard]] std::span<const decode::Branch> branches() const { return last(options_.newest); }
  // As many, if asked for: when each of them was.
  [[nodiscard]] std::span<const pt::Moment> times() const;
  // When the first branch that came was.
  [[nodiscard]] const pt::Moment& first_time() const { return first_time_; }
  // All branches that came, also those that were not kept.
  [[nodiscard]] uint64_t count() const { return dropped_ + branches_.size(); }
  // The newest `count`, oldest of them first: a virtual LBR.
  [[nodiscard]] std::span<const decode::Branch> last(size_t count) const;
  [[nodiscard]] std::span<const decode::Block> blocks() const { return blocks_; }
  [[nodiscard]] std::span<const decode::DecodeError> errors() const { return errors_; }

  [[nodiscard]] unsigned wants() const override {
    return decode::kWantsBranches | (options_.blocks ? decode::kWantsBlocks : 0u) |
           (options_.times ? decode::kWantsTimes : 0u);
  }
  void on_branch(const decode::Branch& branch) override { on_branches({&branch, 1}); }
  void on_branches(std::span<const decode::Branch> branches) override;
  void on_time(const pt::Moment& time) override { now_ = time; }
  void on_block(const decode::Block& block) override {
    if (options_.blocks) blocks_.push_back(block);
  }
  void on_error(const decode::DecodeError& error) override {
    if (options_.errors && errors_.size() < kMaxErrors) errors_.push_back(error);
  }

 private:
  void forget_old();

  Options options_;
  std::vector<decode::Branch> branches_;
  std::vector<pt::Moment> times_;
  pt::Moment now_;
  pt::Moment first_time_;
  uint64_t dropped_ = 0;
  std::vector<decode::Block> blocks_;
  std::vector<decode::DecodeError> errors_;
};

// perf 6.1's brstack: "0xFROM/0xTO/-/-/-/CYCLES/ " entries, newest first, space between. The flags
// are unknown, hence "-". The newest trace end marker is left out, as perf does. `cycles` are as
// many as branches, or none: 0 everywhere.
std::string brstack(std::span<const decode::Branch> branches, size_t max_entries = 32,
                    std::span<const uint64_t> cycles = {});

}  // namespace auxtrail::history
