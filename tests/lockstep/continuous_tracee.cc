// See continuous_tracee.h.
#include "continuous_tracee.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "state.h"
#include "trigger_signal.h"

namespace auxtrail::lockstep {
namespace {

constexpr uint64_t kTrapFlag = 0x100;
constexpr uint64_t kGateBytes = kRedZoneBytes + 16;  // between the program's stack and the gate's
constexpr size_t kMaxSeen = 256;
constexpr size_t kRecent = 48;
constexpr size_t kBreakpoints = 8;
constexpr uint64_t kBreakpointByte = 0xcc;
constexpr size_t kMaxUnitFrameWords = 256;
constexpr std::array<uint8_t, 2> kCallRax = {0xff, 0xd0};
constexpr int kLeaveSignal = SIGWINCH;  // ignored by default

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

// Breakpoints in the cache: the unit changes nothing of such code but the distances of jumps, as
// long as no code of the program goes away.
Place ContinuousTracee::run_to_seen(std::mt19937_64& random) {
  place_ = Place::kCache;
  breakpoints_.clear();
  const uint64_t here = traced_.ip();
  for (size_t i = 0; i < kBreakpoints && !seen_.empty(); ++i) {
    const size_t age = random() % (i % 2 == 0 ? seen_.size() : std::min(seen_.size(), kRecent));
    const uint64_t address = seen_[(seen_next_ + seen_.size() - 1 - age) % seen_.size()];
    if (address != here) set_breakpoint(address);
  }
  set_breakpoint(return_to_cache());
  run_to_breakpoints();
  return place_;
}

void ContinuousTracee::run_to_breakpoints() {
  if (!breakpoints_.empty()) (void)go(0, Until::kReached);
  if (place_ == Place::kExited) return;
  for (const auto& [address, code] : breakpoints_) {
    traced_.set_word(address, (traced_.word(address) & ~uint64_t{0xff}) | code);
  }
  breakpoints_.clear();
}

// What is left of a stub when C++ code has returned to it ends with an indirect jump.
Place ContinuousTracee::finish_unit_work(bool* done) {
  constexpr int kStubInstructions = 40;
  place_ = Place::kCache;
  *done = false;
  if (const uint64_t stub = return_to_cache(); stub != 0) stubs_.insert(stub);
  for (const uint64_t stub : stubs_) set_breakpoint(stub);
  run_to_breakpoints();
  if (place_ != Place::kCache || stubs_.count(traced_.ip()) == 0) return place_;
  InstructionTable instructions(traced_);
  for (int i = 0; i < kStubInstructions && !*done; ++i) {
    const uint64_t ip = traced_.ip();
    const Instruction instruction = instructions.at(ip);
    if (StepOne(traced_, instruction, ip).kind != StopKind::kStep) Die("stepping out of a stub");
    *done = instruction.branch;
  }
  return place_;
}

void ContinuousTracee::set_breakpoint(uint64_t address) {
  if (address == 0 || breakpoints_.count(address) != 0) return;
  const uint64_t code = traced_.word(address);
  breakpoints_[address] = code & 0xff;
  traced_.set_word(address, (code & ~uint64_t{0xff}) | kBreakpointByte);
}

// At one of the breakpoints.
bool ContinuousTracee::is_reached() {
  Registers registers = traced_.registers();
  if (breakpoints_.count(registers.rip - 1) == 0) return false;
  registers.rip -= 1;
  traced_.set_registers(registers);
  return true;
}

// Where the unit's code, which is at work on its own stack, returns to: behind a stub's `call rax`.
// 0 elsewhere.
uint64_t ContinuousTracee::return_to_cache() const {
  const Layout& layout = pair_.traced_layout();
  std::array<uint64_t, kMaxUnitFrameWords> stack{};
  const size_t bytes =
      traced_.read(traced_.registers().rsp, std::as_writable_bytes(std::span(stack)));
  for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) {
    std::array<uint8_t, 2> call{};
    if (layout.is_program_code(stack[i]) || layout.is_unit_code(stack[i])) continue;
    (void)traced_.read(stack[i] - call.size(), std::as_writable_bytes(std::span(call)));
    if (call == kCallRax) return stack[i];
  }
  return 0;
}

// Keeps the newest addresses in the cache.
void ContinuousTracee::note_seen(uint64_t ip) {
  const Layout& layout = pair_.traced_layout();
  if (layout.is_unit_code(ip) || layout.is_program_code(ip)) return;
  if (seen_.size() < kMaxSeen) return seen_.push_back(ip);
  seen_[seen_next_] = ip;
  seen_next_ = (seen_next_ + 1) % kMaxSeen;
}

Place ContinuousTracee::step(uint64_t count) {
  place_ = Place::kCache;
  InstructionTable instructions(traced_);
  for (uint64_t i = 0; i < count && place_ == Place::kCache; ++i) {
    const uint64_t ip = traced_.ip();
    note_seen(ip);
    instructions.forget();  // the cache's code changes
    const Instruction instruction = instructions.at(ip);
    if (instruction.system_call) {
      (void)go(0, Until::kOwnCall);
      continue;
    }
    const Stop stop = StepOne(traced_, instruction, ip);
    if (stop.kind == StopKind::kStep) continue;
    if (stop.kind == StopKind::kExited) return place_ = Place::kExited;
    const bool is_leave_signal = stop.signal == kLeaveSignal;
    if (is_leave_signal) leave_asked_ = false;
    if (!is_leave_signal) (void)go(stop.signal, Until::kHandled);
  }
  return place_;
}

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
        signal = stop.signal == kLeaveSignal ? 0 : stop.signal;
        if (signal == 0) leave_asked_ = false;
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
  if (native) take_leave_signal();
  return true;
}

void ContinuousTracee::ask_to_leave() {
  if (leave_asked_) return;
  if (syscall(SYS_tgkill, traced_.pid(), traced_.pid(), kLeaveSignal) != 0) Die("tgkill");
  leave_asked_ = true;
}

// The program's mask is open again, so it arrives before the next instruction.
void ContinuousTracee::take_leave_signal() {
  if (!leave_asked_) return;
  const Stop stop = traced_.run();
  if (stop.kind != StopKind::kSignal || stop.signal != kLeaveSignal) {
    Die("the signal that asked the unit to leave does not arrive");
  }
  leave_asked_ = false;
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
