// See pair.h.
#include "pair.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>

#include "state.h"

namespace auxtrail::lockstep {
namespace {

constexpr uint64_t kBreakpointByte = 0xcc;
constexpr uint64_t kMaxUnitSteps = 100000;

}  // namespace

Pair::Pair(const LaunchOptions& options, Recorder& recorder, const std::string& unit_path)
    : traced_(options),
      channel_((recorder.expect(), run_to_entry(traced_, traced_results_, unit_path),
                recorder.channel())),
      plain_(options),
      plain_channel_(
          (recorder.expect(), run_to_entry(plain_, plain_results_, unit_path), recorder.channel())),
      traced_layout_(traced_, unit_path),
      plain_layout_(plain_, unit_path),
      instructions_(plain_) {
  if (!channel_ || !plain_channel_) Die("the unit did not connect; is it preloaded?");
  share_start_state();
}

// ld.so keeps a few readings of the CPU's clock, and the unit's start leaves its own traces on the
// dead stack and in vector registers (it reads texts about its process): both begin with the traced
// one's memory and state.
void Pair::share_start_state() {
  std::vector<std::byte> bytes;
  for (const MapLine& line : plain_layout_.writable()) {
    bytes.resize(line.end - line.start);
    bytes.resize(traced_.read(line.start, bytes));
    (void)plain_.write(line.start, bytes);
  }
  plain_.set_extended_state(traced_.extended_state());
}

// The unit's own calls keep their results: it needs its real thread id. In continuous trace it
// sends itself a signal to enter the program, which is taken away: we choose where that happens.
void Pair::run_to_entry(Tracee& tracee, FixedResults& results, const std::string& unit_path) {
  FixStartState(tracee);
  const uint64_t entry = EntryAddress(tracee);
  const uint64_t code = tracee.word(entry);
  tracee.set_word(entry, (code & ~uint64_t{0xff}) | kBreakpointByte);
  Registers before{};
  for (;;) {
    const Stop stop = tracee.run();
    if (stop.kind == StopKind::kBreakpoint) break;
    if (stop.kind == StopKind::kSyscallEntry) {
      before = tracee.registers();
    } else if (stop.kind == StopKind::kSyscallExit) {
      if (FixedResults::concerns(before.orig_rax) &&
          !Layout(tracee, unit_path).is_unit_code(stop.ip)) {
        results.apply(tracee, before);
      }
    } else if (stop.kind == StopKind::kSignal && stop.code == SI_TIMER) {
      continue;
    } else {
      Die(fmt::format("the program does not reach its entry point (stop {}, signal {})",
                      static_cast<int>(stop.kind), stop.signal));
    }
  }
  tracee.set_word(entry, code);
  Registers registers = tracee.registers();
  registers.rip = entry;
  tracee.set_registers(registers);
}

Native Pair::diverged(const std::string& why) {
  problem_ = why;
  return Native::kDiverged;
}

void Pair::mappings_changed() {
  traced_layout_.refresh();
  plain_layout_.refresh();
  instructions_.forget();
}

Native Pair::step() {
  const uint64_t ip = plain_.ip();
  if (traced_.ip() != ip) {
    return diverged(fmt::format("natively at {} and {}", Describe(traced_, traced_.ip()),
                                Describe(plain_, ip)));
  }
  if (plain_layout_.is_unit_entry(ip) && plain_layout_.is_unit_code(ip)) return call_unit();
  if (plain_layout_.is_unit_code(ip)) return leave_unit();
  const Instruction& instruction = instructions_.at(ip);
  if (instruction.system_call) {
    bool breakpoint = false;
    return next_system_call(&breakpoint);
  }
  for (Tracee* tracee : {&traced_, &plain_}) {
    const Stop stop = StepOne(*tracee, instruction, ip);
    if (stop.kind != StopKind::kStep) {
      return diverged(
          fmt::format("signal {} (code {}) at {}", stop.signal, stop.code, Describe(*tracee, ip)));
    }
  }
  if (instruction.varies) plain_.set_registers(traced_.registers());
  return Native::kOk;
}

Native Pair::run_to(uint64_t address, uint64_t count) {
  const uint64_t code = plain_.word(address);
  const uint64_t with_trap = (code & ~uint64_t{0xff}) | kBreakpointByte;
  for (uint64_t i = 0; i < count; ++i) {
    if (plain_.ip() == address) {
      const Native status = step();
      if (status != Native::kOk) return status;
    }
    for (Tracee* tracee : {&traced_, &plain_}) tracee->set_word(address, with_trap);
    bool reached = false;
    while (!reached) {
      const Native status = next_system_call(&reached);
      if (status != Native::kOk) return status;
    }
    for (Tracee* tracee : {&traced_, &plain_}) {
      tracee->set_word(address, code);
      Registers registers = tracee->registers();
      if (registers.rip != address + 1) return diverged("a breakpoint that is not ours");
      registers.rip = address;
      tracee->set_registers(registers);
    }
  }
  return Native::kOk;
}

// The two units do not work alike (only one has translated code to look after): run both to the
// function's return, check what a function must keep and return, and give both the traced one's
// scratch registers.
Native Pair::call_unit() {
  const Registers before = plain_.registers();
  const uint64_t return_address = plain_.word(before.rsp);
  if (traced_.word(before.rsp) != return_address) return diverged("entering the unit");
  const Native status = run_to(return_address, 1);
  if (status != Native::kOk) return status;
  const Registers traced = traced_.registers();
  const Registers plain = plain_.registers();
  if (traced.rax != plain.rax || traced.rsp != plain.rsp || traced.rbx != plain.rbx ||
      traced.rbp != plain.rbp || traced.r12 != plain.r12 || traced.r13 != plain.r13 ||
      traced.r14 != plain.r14 || traced.r15 != plain.r15 || traced.rsp != before.rsp + 8) {
    return diverged(fmt::format("after a function of the unit that returns to {}",
                                Describe(plain_, return_address)));
  }
  plain_.set_registers(traced);
  plain_.set_extended_state(traced_.extended_state());
  share_dead_stack();
  return Native::kOk;
}

// Somewhere inside the unit: libc returns to a function of the unit that called it, or the unit's
// start or end runs. Each process steps out of it on its own way.
Native Pair::leave_unit() {
  for (Tracee* tracee : {&traced_, &plain_}) {
    for (uint64_t i = 0; plain_layout_.is_unit_code(tracee->ip()); ++i) {
      if (i == kMaxUnitSteps || tracee->step().kind != StopKind::kStep) {
        return diverged("stepping out of the unit, at " + Describe(*tracee, tracee->ip()));
      }
    }
  }
  return Native::kOk;
}

void Pair::share_dead_stack() {
  const uint64_t end = plain_.registers().rsp - kRedZoneBytes;
  const auto holds_end = [end](const MapLine& line) { return line.contains(end - 1); };
  const auto find = [&](const Layout& layout) {
    return std::find_if(layout.writable().begin(), layout.writable().end(), holds_end);
  };
  if (find(traced_layout_) == traced_layout_.writable().end() ||
      find(plain_layout_) == plain_layout_.writable().end()) {
    mappings_changed();  // the stack has grown
  }
  const auto traced_line = find(traced_layout_);
  const auto plain_line = find(plain_layout_);
  if (traced_line == traced_layout_.writable().end() ||
      plain_line == plain_layout_.writable().end()) {
    return;
  }
  const uint64_t start = std::max({traced_line->start, plain_line->start, end - kDeadStackBytes});
  std::vector<std::byte> bytes(end - start);
  bytes.resize(traced_.read(start, bytes));
  (void)plain_.write(start, bytes);
}

}  // namespace auxtrail::lockstep
