// Campaign: windows all over one program, each checked against single steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coverage.h"
#include "recorder.h"

namespace auxtrail::lockstep {

// What a self-test falsifies, to see that the comparison notices.
enum class Mutation : uint8_t {
  kNone,
  kOutcome,     // one bit of a TNT packet
  kTransfer,    // one decoded branch missing
  kTarget,      // one decoded branch leads elsewhere
  kFinalIp,     // the history ends one branch early
  kRegister,    // one bit of rbx
  kFlags,       // the carry flag
  kVector,      // one bit of xmm3
  kSignalMask,  // one more signal blocked
  kMemory,      // one byte on the stack
  kCount
};
const char* Name(Mutation mutation);

struct CampaignOptions {
  std::string unit;  // path of libauxtrail-unit.so
  std::vector<std::string> command;
  std::string input;
  uint64_t steps = 100000;
  uint32_t aux_bytes = 256;
  uint64_t skip_calls = 0;    // system calls before the first window
  uint64_t leap_windows = 0;  // after so many windows both run natively over ...
  uint64_t leap_calls = 0;    // ... so many system calls
  uint64_t seed = 1;
  bool end_by_trap = false;  // channel::SessionConfig's
  Mutation mutation = Mutation::kNone;
};

struct CampaignResult {
  uint64_t runs = 0;
  uint64_t steps = 0;         // single steps inside windows, all compared
  uint64_t native_steps = 0;  // in both, between windows
  uint64_t windows = 0;
  uint64_t opened = 0;     // windows that ran translated code
  uint64_t transfers = 0;  // branches and fallen-through conditionals compared
  uint64_t memory_bytes = 0;
  Reasons reasons{};
  Coverage coverage;
  std::vector<std::string> differences;  // of the first window that differs; empty: none does
};

CampaignResult RunCampaign(const CampaignOptions& options);

}  // namespace auxtrail::lockstep
