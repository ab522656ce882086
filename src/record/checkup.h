// What `auxtrail doctor` finds out about this machine: one finding per thing that recording or
// reading a recording depends on, each tried out where that is possible.
#pragma once

#include <string>
#include <vector>

namespace auxtrail::record {

struct Finding {
  enum class State {
    kOk,
    kNote,      // absent, but nothing suffers that could be mended here
    kShortfall  // less than there could be; `remedy` mends it
  };
  std::string topic;
  State state = State::kOk;
  std::string text;
  std::string remedy;  // a command, or what to do; never empty for a shortfall
};

std::vector<Finding> examine_machine();

}  // namespace auxtrail::record
