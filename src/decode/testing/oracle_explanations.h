// Where libipt's block decoder and its instruction decoder are known to differ, and why.
#pragma once

#include <string>
#include <vector>

#include "decode/testing/block_flow.h"

namespace auxtrail::decode::testing {

// The name of the reason for a difference at `index`; nullptr if none is known.
const char* oracle_explanation(const DifferentialCase& made, size_t index,
                               const std::vector<BlockRecord>& blocks,
                               const std::vector<BlockRecord>& insns);
// Name by name, with the reasons.
std::string oracle_explanations();

}  // namespace auxtrail::decode::testing
