// One window in the traced process: how it is provoked, and what came of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "channel/layout.h"
#include "pair.h"

namespace auxtrail::lockstep {

struct Window {
  uint64_t start_ip = 0;
  uint64_t end_ip = 0;                               // where the program goes on natively
  bool opened = false;                               // false: the program went on natively at once
  channel::Reason reason = channel::Reason::kCount;  // why it ended, or did not open
  std::optional<TakenSample> sample;                 // none if the unit delivered none
  std::string problem;                               // not empty: it did not end as windows do
};

// Delivers the trigger's signal to the traced process, as the kernel's perf event would, and runs
// it until the signal's work is done: the window is over and the program's next instruction is
// about to run.
Window RunWindow(Pair& pair);

}  // namespace auxtrail::lockstep
