// The oracle: libipt's two flow decoders, block by block and instruction by instruction, as
// BlockFlows.
//
// They share packets, events and the instruction decoder, but follow the code each in its own way
// (the block decoder through a cache of blocks). Behind an error both go on at the next PSB.
#pragma once

#include <intel-pt.h>

#include "decode/code_images.h"
#include "decode/testing/block_flow.h"

namespace auxtrail::decode::testing {

class LibiptOracle {
 public:
  void decode_blocks(const DifferentialCase& made, BlockFlow& flow);
  void decode_insns(const DifferentialCase& made, BlockFlow& flow);

 private:
  CodeImages images_;
};

// libipt's event and error in our words.
flow::Event event_of(const pt_event& event);
flow::Status status_of(int pt_status);

}  // namespace auxtrail::decode::testing
