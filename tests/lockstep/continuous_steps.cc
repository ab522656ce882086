// How a ContinuousTracee gets to all kinds of places in the code cache: by single steps and by
// breakpoints in translated code.
#include <algorithm>
#include <array>

#include "continuous_tracee.h"

namespace auxtrail::lockstep {
namespace {

constexpr size_t kMaxSeen = 256;
constexpr size_t kRecent = 48;
constexpr size_t kBreakpoints = 8;
constexpr uint64_t kBreakpointByte = 0xcc;
constexpr size_t kMaxUnitFrameWords = 256;
constexpr std::array<uint8_t, 2> kCallRax = {0xff, 0xd0};

}  // namespace

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

// The unit may write a jump where a breakpoint is, which then stays.
void ContinuousTracee::run_to_breakpoints() {
  if (!breakpoints_.empty()) (void)go(0, Until::kReached);
  if (place_ == Place::kExited) return;
  for (const auto& [address, byte] : breakpoints_) {
    const uint64_t code = traced_.word(address);
    if ((code & 0xff) == kBreakpointByte) {
      traced_.set_word(address, (code & ~uint64_t{0xff}) | byte);
    }
  }
  breakpoints_.clear();
}

// What is left of a stub when C++ code has returned to it ends with an indirect jump. It is not
// done where it did not begin in a stub: the way back from the gate is none, and a sample that is
// taken there is not taken where the next stub is left.
Place ContinuousTracee::finish_unit_work(bool* done) {
  constexpr int kStubInstructions = 40;
  place_ = Place::kCache;
  *done = false;
  const uint64_t begun = return_to_cache();
  if (begun != 0) stubs_.insert(begun);
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
  *done = *done && begun != 0;
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
    int signal = stop.signal;
    if (!take_away(signal) && signal != 0) (void)go(signal, Until::kHandled);
  }
  return place_;
}

}  // namespace auxtrail::lockstep
