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
  uint64_t leap_windows = 0;  // after so many windows or rounds both run ...
  uint64_t leap_calls = 0;    // ... over so many system calls, not stepped
  uint64_t seed = 1;
  int signal = 0;  // continuous trace: one that the program handles and is sent, or 0
  Mutation mutation = Mutation::kNone;
};

// Of a campaign in continuous trace.
struct ContinuousCounts {
  uint64_t entries = 0;
  uint64_t rounds = 0;
  uint64_t samples = 0;
  uint64_t sample_states = 0;  // samples at which all of the state was compared
  uint64_t calls = 0;          // system calls in the cache, state compared
  uint64_t leaps = 0;          // of these, with the way there not stepped
  uint64_t leaves = 0;         // out of the cache, state compared
  uint64_t signals = 0;        // for the program, state compared behind its handler
  uint64_t gate_signals = 0;   // of these, on the way through the gate
  uint64_t compressed_returns = 0;
};

struct CampaignResult {
  uint64_t runs = 0;
  uint64_t steps = 0;         // single steps inside windows, all compared
  uint64_t native_steps = 0;  // in both, between windows
  uint64_t windows = 0;
  uint64_t opened = 0;     // windows that ran translated code
  uint64_t transfers = 0;  // branches and fallen-through conditionals compared
  uint64_t memory_bytes = 0;
  ContinuousCounts continuous;
  Reasons reasons{};
  Coverage coverage;
  std::vector<std::string> differences;  // of the first window that differs; empty: none does
};

// How the program is started, in both processes.
LaunchOptions MakeLaunch(const CampaignOptions& options, const Recorder& recorder);

CampaignResult RunCampaign(const CampaignOptions& options);

}  // namespace auxtrail::lockstep
