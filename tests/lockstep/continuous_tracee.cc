// See continuous_tracee.h.
#include "continuous_tracee.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "state.h"
#include "trigger_signal.h"

namespace auxtrail::lockstep {
namespace {

constexpr uint64_t kTrapFlag = 0x100;
constexpr uint64_t kGateBytes = kRedZoneBytes + 16;  // between the program's stack and the gate's

}  // namespace

Place ContinuousTracee::enter() {
  place_ = Place::kNative;
  return deliver(kEntryCookie);
}

Place ContinuousTracee::overflow() {
  place_ = Place::kCache;
  return deliver(kTriggerCookie);
}

Place ContinuousTracee::deliver(uint64_t cookie) {
  traced_.provoke_signal(SIGTRAP);
  traced_.set_signal_info(TriggerInfo(cookie));
  return go(SIGTRAP, Until::kHandled);
}

Place ContinuousTracee::run(uint64_t polls) {
  place_ = Place::kCache;
  for (; polls != 0 && place_ == Place::kCache; --polls) (void)go(0, Until::kPolled);
  return place_;
}

Place ContinuousTracee::run_to_own_call() {
  place_ = Place::kCache;
  return go(0, Until::kOwnCall);
}

// Goes on with `signal`.
Place ContinuousTracee::go(int signal, Until until) {
  bool is_return = false;
  for (;;) {
    if (signal != 0) save_dead_stack();
    const Stop stop = traced_.run(signal);
    signal = 0;
    switch (stop.kind) {
      case StopKind::kExited:
        return place_ = Place::kExited;
      case StopKind::kSyscallEntry:
        call_number_ = stop.number;
        if (pair_.traced_layout().is_behind_gate_call(stop.ip)) return place_ = Place::kCall;
        is_return = stop.number == SYS_rt_sigreturn;
        break;
      case StopKind::kSyscallExit:
        if (is_return) {
          is_return = false;
          const bool done = returned();
          if (done && (until == Until::kHandled || place_ != Place::kCache)) return place_;
        } else if (is_reason_to_stop(until)) {
          return place_;
        }
        break;
      case StopKind::kBreakpoint:
        if (is_reached()) return place_;
        [[fallthrough]];
      default:
        signal = stop.signal;
        if (take_away(signal)) return place_;
    }
  }
}

// At the exit of a system call of the unit's. In a handler none is: single-stepping where SIGTRAP
// is blocked would take the handler away.
bool ContinuousTracee::is_reason_to_stop(Until until) const {
  if (interrupted_ip_ != 0) return false;
  if (until == Until::kOwnCall) return true;
  return until != Until::kHandled && call_number_ == SYS_rt_sigpending;
}

// A return from a signal is done: where is the thread? False if the unit is single-stepping it.
bool ContinuousTracee::returned() {
  restore_dead_stack();
  const Registers registers = traced_.registers();
  const bool is_back = registers.rip == interrupted_ip_ && registers.rsp == interrupted_rsp_;
  interrupted_ip_ = 0;
  if ((registers.eflags & kTrapFlag) != 0) return false;
  const Layout& layout = pair_.traced_layout();
  // Back to where the signal came: that may be libc's code, on the unit's behalf. The unit's own
  // way out returns from no signal.
  if (is_back) return true;
  // The program also calls functions of the unit's: those that are interposed, its end.
  const bool native = layout.is_program_code(registers.rip) || layout.is_unit_code(registers.rip);
  place_ = native ? Place::kNative : Place::kCache;
  if (native) take_sent();
  return true;
}

void ContinuousTracee::send(int signal) {
  if (sent_ != 0) return;
  if (syscall(SYS_tgkill, traced_.pid(), traced_.pid(), signal) != 0) Die("tgkill");
  sent_ = signal;
}

// A signal is about to be delivered; `signal` becomes 0 if it was sent by send(). True: the program
// has a handler for it.
bool ContinuousTracee::take_away(int& signal) {
  if (signal == 0 || signal != sent_) return false;
  const bool is_programs = sent_ != kLeaveSignal;
  sent_ = signal = 0;
  if (is_programs) place_ = Place::kSignal;
  return is_programs;
}

// The program's mask is open again: what was sent arrives before the next instruction.
void ContinuousTracee::take_sent() {
  if (sent_ == 0) return;
  const Stop stop = traced_.run();
  int signal = stop.signal;
  if (stop.kind != StopKind::kSignal || signal != sent_) Die("a signal does not arrive");
  (void)take_away(signal);
}

Registers ContinuousTracee::registers_at_call() const {
  Registers registers = traced_.registers();
  registers.rip = traced_.word(registers.rsp);
  registers.rsp += kGateBytes;
  return registers;
}

uint64_t ContinuousTracee::call_address() const {
  constexpr uint64_t kSyscallBytes = 2;
  return registers_at_call().rip - kSyscallBytes;
}

Registers ContinuousTracee::registers_at(uint64_t ip) const {
  Registers registers = traced_.registers();
  registers.rip = ip;
  return registers;
}

// A signal's frame overwrites memory below the program's stack, which programs load bytes of. The
// plain process is behind here, so it can't be given the same: the traced one keeps its own.
void ContinuousTracee::save_dead_stack() {
  const Registers registers = traced_.registers();
  interrupted_ip_ = registers.rip;
  interrupted_rsp_ = registers.rsp;
  dead_bytes_.clear();
  const uint64_t end = registers.rsp - kRedZoneBytes;
  for (const MapLine& line : pair_.plain_layout().writable()) {
    if (!line.contains(end - 1)) continue;
    dead_stack_ = std::max(line.start, end - kDeadStackBytes);
    dead_bytes_.resize(end - dead_stack_);
    dead_bytes_.resize(traced_.read(dead_stack_, dead_bytes_));
  }
}

void ContinuousTracee::restore_dead_stack() {
  if (!dead_bytes_.empty()) (void)traced_.write(dead_stack_, dead_bytes_);
  dead_bytes_.clear();
}

}  // namespace auxtrail::lockstep
