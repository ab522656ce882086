// See pair.h.
#include "pair.h"

#include <fmt/format.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>

#include "state.h"

namespace auxtrail::lockstep {
namespace {

constexpr uint64_t kDeadStackBytes =
    32768;  // a signal frame with all vector state, and a handler's frames
constexpr uint64_t kBreakpointByte = 0xcc;
constexpr uint64_t kMaxUnitSteps = 100000;
constexpr uint64_t kLowestError = static_cast<uint64_t>(-4095);

bool ChangesMappings(uint64_t number) {
  return number == SYS_mmap || number == SYS_munmap || number == SYS_mprotect ||
         number == SYS_mremap || number == SYS_pkey_mprotect;
}

// Makes the plain process's request for memory end at `result`, where the traced one's did.
void AskForAddress(Registers& registers, uint64_t number, uint64_t result) {
  if (result >= kLowestError) return;
  if (number == SYS_mmap && (registers.r10 & MAP_FIXED) == 0) {
    registers.rdi = result;
    registers.r10 |= MAP_FIXED_NOREPLACE;
  }
  if (number == SYS_mremap) {
    const bool moved = result != registers.rdi;
    registers.r10 = moved ? registers.r10 | MREMAP_FIXED | MREMAP_MAYMOVE
                          : registers.r10 & ~uint64_t{MREMAP_MAYMOVE};
    if (moved) registers.r8 = result;
  }
}

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
  share_start_memory();
}

// ld.so keeps a few readings of the CPU's clock, and the unit's start leaves its own traces on the
// dead stack: both begin with the traced one's memory.
void Pair::share_start_memory() {
  std::vector<std::byte> bytes;
  for (const MapLine& line : plain_layout_.writable()) {
    bytes.resize(line.end - line.start);
    bytes.resize(traced_.read(line.start, bytes));
    (void)plain_.write(line.start, bytes);
  }
}

// The unit's own calls keep their results: it needs its real thread id.
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

// Runs to the next system call of the program, or of the unit on its behalf.
Pair::EntryStop Pair::run_to_program_call(Tracee& tracee, const Layout& layout) {
  for (;;) {
    const Stop stop = tracee.run();
    switch (stop.kind) {
      case StopKind::kExited:
        return {Native::kExited, false, 0};
      case StopKind::kBreakpoint:
        return {Native::kOk, true, 0};
      case StopKind::kSyscallEntry:
        break;
      default:
        return {diverged(fmt::format("signal {} (code {}) at {}", stop.signal, stop.code,
                                     Describe(tracee, tracee.ip()))),
                false, 0};
    }
    if (!layout.is_unit_code(stop.ip) || ChangesMappings(stop.number)) {
      return {Native::kOk, false, stop.number};
    }
    if (tracee.run().kind != StopKind::kSyscallExit) {
      return {diverged("a system call of the unit does not return"), false, 0};
    }
  }
}

Native Pair::next_system_call(bool* breakpoint) {
  const EntryStop traced = run_to_program_call(traced_, traced_layout_);
  const EntryStop plain = run_to_program_call(plain_, plain_layout_);
  if (traced.status == Native::kDiverged || plain.status == Native::kDiverged) {
    return Native::kDiverged;
  }
  if (traced.status != plain.status || traced.breakpoint != plain.breakpoint ||
      traced.number != plain.number) {
    return diverged(fmt::format("system calls {} and {}", traced.number, plain.number));
  }
  *breakpoint = traced.breakpoint;
  if (traced.status != Native::kOk || traced.breakpoint) return traced.status;
  return system_call(traced.number);
}

// Both stand at the entry of the same call.
Native Pair::system_call(uint64_t number) {
  const Registers traced_before = traced_.registers();
  Registers plain_before = plain_.registers();
  Stop stop = traced_.run();
  if (stop.kind == StopKind::kExited) {
    (void)plain_.run();
    return Native::kExited;
  }
  if (stop.kind != StopKind::kSyscallExit) return diverged("a system call that does not return");
  const bool fix = FixedResults::concerns(number) && !traced_layout_.is_unit_code(stop.ip);
  if (fix) traced_results_.apply(traced_, traced_before);
  const uint64_t result = traced_.registers().rax;

  Registers asking = plain_before;
  AskForAddress(asking, number, result);
  plain_.set_registers(asking);
  if (plain_.run().kind != StopKind::kSyscallExit) return diverged("a call that does not return");
  Registers after = plain_.registers();
  after.rdi = plain_before.rdi;
  after.r10 = plain_before.r10;
  after.r8 = plain_before.r8;
  plain_.set_registers(after);
  if (fix) plain_results_.apply(plain_, plain_before);
  if (ChangesMappings(number) || number == SYS_brk) mappings_changed();
  const uint64_t plain_result = plain_.registers().rax;
  if (plain_result != result) {
    return diverged(
        fmt::format("system call {}: results {:#x} and {:#x}", number, result, plain_result));
  }
  return Native::kOk;
}

Native Pair::run_system_calls(uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    bool breakpoint = false;
    const Native status = next_system_call(&breakpoint);
    if (status != Native::kOk) return status;
  }
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
  const uint64_t rsp = traced_.registers().rsp;
  const uint64_t end = rsp - kRedZoneBytes;
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
