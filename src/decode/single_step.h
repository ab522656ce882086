// Ground truth for the decoder's tests: a program run instruction by instruction under ptrace.
//
// What each instruction is comes from Zydis, which the decoder under test does not use.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/branch.h"

namespace auxtrail::decode::test {

enum class StepClass : uint8_t {
  kOther,
  kConditional,
  kJump,
  kCall,
  kJumpIndirect,
  kCallIndirect,
  kReturn,
  kSyscall,
};

struct StepInsn {
  StepClass cls = StepClass::kOther;
  uint8_t length = 0;
  bool repeats = false;  // a string instruction with rep: one step per iteration
};

struct MapLine {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t file_offset = 0;
  std::string path;
};

struct Steps {
  std::vector<uint64_t> ips;  // every executed instruction in order; iterations of rep count once
  std::unordered_map<uint64_t, StepInsn> insns;
  std::vector<MapLine> maps;  // executable mappings at the end
  std::string failure;        // why there are none; empty if all is well
};

// Runs `command` for at most `skip` + `count` steps and records the last `count`. The child ends
// with the call.
Steps single_step(const std::vector<std::string>& command, size_t skip, size_t count);

}  // namespace auxtrail::decode::test
