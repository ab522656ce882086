// Follow: the plain process, step by step, along a history that the traced one left.
//
// This is the truth: the CPU's trap flag stops behind each instruction; what each is, Zydis says.
// Every transfer of control and every conditional branch that falls through must be the history's
// next entry, every one that code alone does not tell the packets' next outcome, and the last
// instruction must lead to the history's last address.
#pragma once

#include <cstdint>
#include <string>

#include "coverage.h"
#include "history.h"
#include "pair.h"

namespace auxtrail::lockstep {

struct Walk {
  uint64_t steps = 0;      // instructions executed; a repeated string instruction is one
  uint64_t transfers = 0;  // entries of the history that agreed
  uint64_t compressed_returns = 0;
  std::string difference;  // empty: all agreed
};

Walk FollowHistory(Pair& pair, const History& history, Coverage& coverage);

}  // namespace auxtrail::lockstep
