// Where libipt's block decoder is known to differ from its instruction decoder, and from
// flow::FlowDecoder, and why.
//
// Of traces without damage, every difference has its own reason, and who is right is known. With
// damaged ones decoders notice at different places that something is wrong, and the names only sort
// them; what follows the next PSB is compared again.
#pragma once

#include <string>
#include <vector>

#include "decode/testing/block_flow.h"

namespace auxtrail::decode::testing {

// Two flows and the records of them that differ.
struct Place {
  const std::vector<BlockRecord>& left;
  size_t l;
  const std::vector<BlockRecord>& right;
  size_t r;
};

// The name of the reason for a difference; empty if none is known.
std::string oracle_explanation(const DifferentialCase& made, const Place& place);
std::string flow_explanation(const DifferentialCase& made, const Place& place);
// The same for single records, behind which libipt's block decoder and FlowDecoder go on alike.
const char* flow_passes(const BlockRecord& libipt, const BlockRecord& flow);
// Name by name, with the reasons.
std::string oracle_explanations();

}  // namespace auxtrail::decode::testing
