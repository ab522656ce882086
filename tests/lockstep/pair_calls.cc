// The system calls of a pair (pair.h): both make the same ones, with the same results.
#include <fmt/format.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "pair.h"

namespace auxtrail::lockstep {
namespace {

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
  return make_call(traced.number);
}

Native Pair::meet_call(uint64_t number) {
  const EntryStop plain = run_to_program_call(plain_, plain_layout_);
  if (plain.status != Native::kOk) return plain.status;
  if (plain.breakpoint || plain.number != number) {
    return diverged(fmt::format("system calls {} and {}", number, plain.number));
  }
  return Native::kOk;
}

Native Pair::make_call(uint64_t number) {
  const Registers traced_before = traced_.registers();
  Registers plain_before = plain_.registers();
  Stop stop = traced_.run();
  if (stop.kind == StopKind::kExited) {
    (void)plain_.run();
    return Native::kExited;
  }
  if (stop.kind != StopKind::kSyscallExit) return diverged("a system call that does not return");
  const bool is_programs =
      !traced_layout_.is_unit_code(stop.ip) || traced_layout_.is_behind_gate_call(stop.ip);
  const bool fix = FixedResults::concerns(number) && is_programs;
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

}  // namespace auxtrail::lockstep
