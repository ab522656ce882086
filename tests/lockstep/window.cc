// See window.h.
#include "window.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>

#include "trigger_signal.h"

namespace auxtrail::lockstep {
namespace {

// Not in the code cache. A function of the unit that the program calls ends a window, too.
bool IsNative(const Layout& layout, uint64_t ip) {
  return layout.is_program_code(ip) || layout.is_unit_code(ip);
}

// Runs on until a return from a signal leads back to the program. The unit's system calls and the
// signals that end a window come by on the way.
void RunToProgram(Pair& pair, Window& window) {
  Tracee& traced = pair.traced();
  int signal = SIGTRAP;
  bool returning = false;
  for (;;) {
    const Stop stop = traced.run(signal);
    signal = 0;
    switch (stop.kind) {
      case StopKind::kSyscallEntry:
        returning = stop.number == SYS_rt_sigreturn;
        break;
      case StopKind::kSyscallExit:
        if (!returning) break;
        returning = false;
        if (!window.opened) pair.share_dead_stack();  // the trigger's frame is popped now
        window.end_ip = traced.ip();
        if (IsNative(pair.traced_layout(), window.end_ip)) return;
        window.opened = true;
        break;
      case StopKind::kExited:
        window.problem = fmt::format("the program ended, wait status {:#x}", stop.status);
        return;
      default:
        signal = stop.signal;
    }
  }
}

channel::Reason Counted(const Reasons& before, const Reasons& after) {
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] != after[i]) return static_cast<channel::Reason>(i);
  }
  return channel::Reason::kCount;
}

}  // namespace

Window RunWindow(Pair& pair) {
  Window window;
  window.start_ip = pair.traced().ip();
  const Reasons before = pair.channel().reasons();
  pair.traced().provoke_signal(SIGTRAP);
  pair.traced().set_signal_info(TriggerInfo(kTriggerCookie));
  RunToProgram(pair, window);
  window.reason = Counted(before, pair.channel().reasons());
  auto samples = pair.channel().samples();
  if (samples.size() == 1) window.sample = std::move(samples[0]);
  if (samples.size() > 1)
    window.problem = fmt::format("{} samples of one overflow", samples.size());
  return window;
}

}  // namespace auxtrail::lockstep
