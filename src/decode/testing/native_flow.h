// flow::FlowDecoder as a BlockFlow.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "decode/testing/block_flow.h"
#include "flow/code_memory.h"

namespace auxtrail::decode::testing {

class NativeFlow {
 public:
  void decode(const DifferentialCase& made, BlockFlow& flow);

 private:
  // The code of a map, read once.
  struct Code {
    std::vector<std::vector<uint8_t>> bytes;
    flow::CodeMemory memory;
  };
  const flow::CodeMemory& code(const image::CodeMap& map);

  std::unordered_map<uint64_t, std::unique_ptr<Code>> codes_;  // by CodeMap::id
};

}  // namespace auxtrail::decode::testing
