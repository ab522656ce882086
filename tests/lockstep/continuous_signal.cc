// Signals for the program in a ContinuousRun: both processes get them at the same position, and run
// the handler natively. What it was shown stands in the program's memory.
#include <fmt/format.h>
#include <sys/syscall.h>

#include "continuous_run.h"

namespace auxtrail::lockstep {

// The traced one is about to handle the signal: where its packets lead, or on its way through the
// gate, at the call or behind it.
void ContinuousRun::handle_signal() {
  follow(stream_.end());
  if (!more()) return;
  const uint64_t ip = pair_.plain().ip();
  const bool in_gate = pair_.traced_layout().is_unit_code(pair_.traced().ip());
  if (!in_gate) compare(pair_.traced().registers(), true, "before a signal");
  pair_.plain().provoke_signal(options_.signal);
  if (!run_handler(pair_.traced()) || !run_handler(pair_.plain())) return;
  if (pair_.plain().ip() != ip) return differ("the handler's return leads elsewhere");
  compare(pair_.traced().registers(), true, "behind a signal's handler");
  for (const auto& text : comparison_.compare_memory())
    differ("behind a signal's handler: " + text);
  pair_.share_dead_stack();
  ++result_.continuous.signals;
  result_.continuous.gate_signals += in_gate ? 1 : 0;
  check_overflows(1);
}

bool ContinuousRun::run_handler(Tracee& tracee) {
  int signal = options_.signal;
  bool returns = false;
  for (;;) {
    const Stop stop = tracee.run(signal);
    signal = 0;
    if (stop.kind == StopKind::kSyscallEntry) {
      returns = stop.number == SYS_rt_sigreturn;
    } else if (stop.kind != StopKind::kSyscallExit) {
      differ(fmt::format("a handler is stopped by signal {} (code {})", stop.signal, stop.code));
      return false;
    } else if (returns) {
      return true;
    }
  }
}

}  // namespace auxtrail::lockstep
