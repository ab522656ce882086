// What `auxtrail decode` makes of branches: lines of text, or totals with a hash of the sequence.
#pragma once

#include <xxhash.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cli/text_output.h"
#include "decode/branch_decoder.h"
#include "pt/trace_config.h"

namespace auxtrail::cli {

// The first errors, for showing; the summary counts all.
class ErrorKeeper : public decode::FlowConsumer {
 public:
  void on_error(const decode::DecodeError& error) override {
    if (errors_.size() < kMaxErrors) errors_.push_back(error);
  }
  [[nodiscard]] std::span<const decode::DecodeError> errors() const { return errors_; }

 private:
  static constexpr size_t kMaxErrors = 10;
  std::vector<decode::DecodeError> errors_;
};

// "FROM TO KIND", one line per branch, without 0x; markers have 0 for the address that they lack.
class BranchPrinter : public ErrorKeeper {
 public:
  // Nobody reads the output any more, or it can't be written: thrown out of the decoder, which
  // knows no other way to end early.
  struct Closed {};

  explicit BranchPrinter(TextOutput& out) : out_(out) {}

  [[nodiscard]] unsigned wants() const override { return decode::kWantsBranches; }
  void on_branch(const decode::Branch& branch) override { on_branches({&branch, 1}); }
  void on_branches(std::span<const decode::Branch> branches) override;
  // Before the output is finished.
  void flush();

 private:
  static constexpr size_t kTextBytes = size_t{64} << 10;

  TextOutput& out_;
  std::vector<char> text_ = std::vector<char>(kTextBytes);
  size_t used_ = 0;
};

// Branches by kind, and their hash: XXH64 with seed 0 over 24 bytes for each branch and marker in
// their order: from, to and the kind's number (decode::BranchKind), each u64 little-endian.
class BranchTotals : public ErrorKeeper {
 public:
  BranchTotals();

  [[nodiscard]] unsigned wants() const override { return decode::kWantsBranches; }
  void on_branch(const decode::Branch& branch) override { on_branches({&branch, 1}); }
  void on_branches(std::span<const decode::Branch> branches) override;

  [[nodiscard]] uint64_t count(decode::BranchKind kind) const {
    return counts_[static_cast<size_t>(kind)];
  }
  [[nodiscard]] uint64_t hash();

 private:
  struct Entry {
    uint64_t from;
    uint64_t to;
    uint64_t kind;
  };
  struct StateEnd {
    void operator()(XXH64_state_t* state) const { XXH64_freeState(state); }
  };
  static constexpr size_t kEntries = 512;

  void hash_entries();

  std::array<uint64_t, static_cast<size_t>(decode::BranchKind::kCount)> counts_{};
  std::unique_ptr<XXH64_state_t, StateEnd> state_{XXH64_createState()};
  std::array<Entry, kEntries> entries_;
  size_t used_ = 0;
};

// What the packets alone tell.
struct PacketTotals {
  uint64_t tnt_bits = 0;
  uint64_t tips = 0;  // without TIP.PGE and TIP.PGD
};
// Behind bytes that are no packet it goes on at the next PSB.
PacketTotals count_packets(std::span<const std::byte> trace, const pt::Errata& errata);

}  // namespace auxtrail::cli
