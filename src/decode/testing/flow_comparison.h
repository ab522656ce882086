// Comparing two flows, record by record, up to the first difference.
//
// Differences that are known, with their reasons, are explained(): counted by name and passed over.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "decode/testing/differential_case.h"
#include "decode/testing/flow_recorder.h"

namespace auxtrail::decode::testing {

struct Difference {
  size_t left = 0;  // index of the record that differs
  size_t right = 0;
  std::string what;
};

// Every field must agree.
std::optional<Difference> compare_flows(const std::vector<FlowRecord>& left,
                                        const std::vector<FlowRecord>& right);
// `flow` is a decoder's; gaps are compared without offsets, optional records of the truth may be
// missing.
std::optional<Difference> compare_with_truth(const SimulatedTrace& trace,
                                             const std::vector<FlowRecord>& flow,
                                             const DecodeSummary& summary);
std::optional<Difference> compare_summaries(const DecodeSummary& left, const DecodeSummary& right);

// The name of the reason why this difference is none; nullptr if it is one.
const char* explanation(const DifferentialCase& made, const Difference& difference,
                        const std::vector<FlowRecord>& left, const std::vector<FlowRecord>& right);
// Name by name, what explanation() knows and why.
std::string explanations();

}  // namespace auxtrail::decode::testing
