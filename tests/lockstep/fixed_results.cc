// See fixed_results.h.
#include "fixed_results.h"

#include <elf.h>
#include <sys/syscall.h>

#include <filesystem>
#include <string>
#include <vector>

namespace auxtrail::lockstep {
namespace {

constexpr uint64_t kProcessId = 4242;
constexpr uint64_t kParentId = 4241;
constexpr uint64_t kTickNs = 1000;

// Calls visit(entry address, type, value) for each entry of the auxiliary vector; only valid right
// behind execve.
template <class Visit>
void EachAuxiliary(const Tracee& tracee, Visit visit) {
  uint64_t at = tracee.registers().rsp;
  at += 8 * (tracee.word(at) + 2);       // argc, argv and its null
  while (tracee.word(at) != 0) at += 8;  // envp
  for (at += 8; tracee.word(at) != AT_NULL; at += 16)
    visit(at, tracee.word(at), tracee.word(at + 8));
}

void Fill(Tracee& tracee, uint64_t address, size_t size, std::byte value) {
  const std::vector<std::byte> bytes(size, value);
  (void)tracee.write(address, bytes);
}

bool IsRandomDevice(const Tracee& tracee, uint64_t fd) {
  std::error_code error;
  const auto path = std::filesystem::read_symlink(
      "/proc/" + std::to_string(tracee.pid()) + "/fd/" + std::to_string(fd), error);
  return path == "/dev/urandom" || path == "/dev/random";
}

void SetResult(Tracee& tracee, uint64_t value) {
  Registers registers = tracee.registers();
  registers.rax = value;
  tracee.set_registers(registers);
}

}  // namespace

void FixedResults::set_time(Tracee& tracee, uint64_t address, uint64_t units_per_second) {
  clock_ns_ += kTickNs;
  if (address == 0) return;
  const uint64_t values[2] = {clock_ns_ / 1000000000,
                              clock_ns_ % 1000000000 / (1000000000 / units_per_second)};
  (void)tracee.write(address, std::as_bytes(std::span(values)));
}

bool FixedResults::concerns(uint64_t number) {
  switch (number) {
    case SYS_getpid:
    case SYS_gettid:
    case SYS_set_tid_address:
    case SYS_getppid:
    case SYS_getrandom:
    case SYS_clock_gettime:
    case SYS_gettimeofday:
    case SYS_time:
    case SYS_times:
    case SYS_getrusage:
    case SYS_sysinfo:
    case SYS_read:
      return true;
    default:
      return false;
  }
}

void FixedResults::apply(Tracee& tracee, const Registers& before) {
  switch (before.orig_rax) {
    case SYS_getpid:
    case SYS_gettid:
    case SYS_set_tid_address:
      return SetResult(tracee, kProcessId);
    case SYS_getppid:
      return SetResult(tracee, kParentId);
    case SYS_getrandom:
      return Fill(tracee, before.rdi, before.rsi, std::byte{random_++});
    case SYS_read:
      if (IsRandomDevice(tracee, before.rdi)) {
        Fill(tracee, before.rsi, before.rdx, std::byte{random_++});
      }
      return;
    case SYS_clock_gettime:
      return set_time(tracee, before.rsi, 1000000000);
    case SYS_gettimeofday:
      return set_time(tracee, before.rdi, 1000000);
    case SYS_time:
      set_time(tracee, 0, 1);
      return SetResult(tracee, clock_ns_ / 1000000000);
    case SYS_times:
      Fill(tracee, before.rdi, 32, std::byte{0});
      return SetResult(tracee, 100);
    case SYS_getrusage:
      return Fill(tracee, before.rsi, 144, std::byte{0});
    case SYS_sysinfo:
      return Fill(tracee, before.rdi, 112, std::byte{1});
    default:
      return;
  }
}

void FixStartState(Tracee& tracee) {
  EachAuxiliary(tracee, [&](uint64_t at, uint64_t type, uint64_t value) {
    if (type == AT_RANDOM) Fill(tracee, value, 16, std::byte{0x5a});
    if (type == AT_SYSINFO_EHDR) tracee.set_word(at, AT_IGNORE);
  });
}

uint64_t EntryAddress(const Tracee& tracee) {
  uint64_t entry = 0;
  EachAuxiliary(tracee, [&](uint64_t, uint64_t type, uint64_t value) {
    if (type == AT_ENTRY) entry = value;
  });
  return entry;
}

}  // namespace auxtrail::lockstep
