// Campaign: windows all over one program, each checked against single steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coverage.h"
#include "mutation.h"
#include "recorder.h"
#include "tracee.h"

namespace auxtrail::lockstep {

struct CampaignOptions {
  std::string unit;  // path of libauxtrail-unit.so
  std::vector<std::string> command;
  std::string input;
  uint64_t steps = 100000;
  RecorderOptions recorder;
  uint64_t skip_calls = 0;    // system calls before the first window
  uint64_t leap_windows = 0;  // after so many windows both run natively ...
  uint64_t leap_calls = 0;    // ... over so many system calls
  uint64_t seed = 1;
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

// How the program is started, in both processes.
LaunchOptions MakeLaunch(const CampaignOptions& options, const Recorder& recorder);

CampaignResult RunCampaign(const CampaignOptions& options);

}  // namespace auxtrail::lockstep
