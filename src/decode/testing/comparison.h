// Comparison: decodes a case in two ways and finds the first difference. Differential runs several
// of them over many cases.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/testing/differential_case.h"
#include "decode/testing/flow_recorder.h"
#include "decode/testing/libipt_oracle.h"

namespace auxtrail::decode::testing {

struct Finding {
  std::string explained;  // the name of the reason why this is no fault; empty: it is one
  std::string what;
  std::string shown;    // both flows around the place, side by side
  uint64_t offset = 0;  // near which packets it is, as far as is known
};

class Comparison {
 public:
  virtual ~Comparison() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  virtual std::optional<Finding> compare(const DifferentialCase& made) = 0;
  // Forgets what decoders remember of the cases before. A difference that is none afterwards came
  // from there: libipt's block cache keeps the execution mode in which a block was decoded first,
  // and gives it to every block there later on (damaged traces run code in the wrong mode).
  virtual void forget() = 0;
  // Whether such a difference is none.
  [[nodiscard]] virtual bool may_forget() const { return true; }
};

// A decoder's branches against what happened; damaged traces have no truth and are passed over.
std::unique_ptr<Comparison> compare_truth(DecoderPool::Factory decoder);
// Two decoders, by all that their consumers are told and by their totals.
std::unique_ptr<Comparison> compare_decoders(DecoderPool::Factory left, DecoderPool::Factory right,
                                             bool with_blocks);
// libipt's instruction decoder against its block decoder: shows where the oracle is of two minds.
std::unique_ptr<Comparison> compare_oracles();
// flow::FlowDecoder against libipt's block decoder.
std::unique_ptr<Comparison> compare_flow(const BlockComparison& how);

class Differential {
 public:
  struct Options {
    CaseOptions cases;
    uint64_t first = 0;
    uint64_t count = 1000;
    bool stop_at_difference = true;
    size_t max_reports = 1;
    std::string doubt;  // explanations with this in their name are not believed
  };
  struct Result {
    uint64_t cases = 0;
    uint64_t bytes = 0;
    uint64_t differences = 0;
    std::map<std::string, uint64_t> explained;  // by comparison and name
    std::string report;                         // of the differences
    std::vector<uint64_t> numbers;              // of the cases that differ, as many as are reported
  };

  Differential(const Options& options, std::vector<RealTrace> real_traces)
      : options_(options), maker_(options.cases, std::move(real_traces)) {}
  void add(std::unique_ptr<Comparison> comparison) {
    comparisons_.push_back(std::move(comparison));
  }
  Result run();

 private:
  Options options_;
  CaseMaker maker_;
  std::vector<std::unique_ptr<Comparison>> comparisons_;
};

// The packets around an offset, or all, one per line.
std::string packet_dump(const std::vector<std::byte>& trace,
                        std::optional<uint64_t> around = std::nullopt);

std::string text(const flow::Event& event);

// The flows side by side around the records that differ.
template <class Record>
std::string side_by_side(const std::vector<Record>& left, size_t left_index,
                         const std::vector<Record>& right, size_t right_index);

}  // namespace auxtrail::decode::testing
