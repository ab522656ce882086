// See comparison.h.
#include "comparison.h"

#include <fmt/format.h>

#include <algorithm>

namespace auxtrail::lockstep {
namespace {

constexpr uint64_t kMemoryEvery = 64;   // comparisons between two of all writable memory
constexpr uint64_t kMemoryFirst = 3;    // and each of the first
constexpr uint64_t kStackBytes = 2048;  // compared every time
constexpr uint64_t kMaxIterations = 1000000;

void Append(std::vector<std::string>& all, std::vector<std::string> more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

// A window that ends by a fault in a repeated string instruction ends between two iterations.
void Comparison::finish_iterations(const Registers& traced) {
  Tracee& stepped = pair_.plain();
  const uint64_t ip = stepped.ip();
  if (!pair_.instructions().at(ip).repeats) return;
  for (uint64_t i = 0; i < kMaxIterations && stepped.ip() == ip; ++i) {
    const Registers plain = stepped.registers();
    if (plain.rcx == traced.rcx && plain.rdi == traced.rdi && plain.rsi == traced.rsi) break;
    if (stepped.step().kind != StopKind::kStep) break;
  }
}

std::vector<std::string> Comparison::compare(Registers traced, bool with_mask, Mutation falsified) {
  ++count_;
  finish_iterations(traced);
  auto traced_extended = pair_.traced().extended_state();
  uint64_t traced_mask = pair_.traced().signal_mask();
  if (falsified == Mutation::kRegister) traced.rbx ^= 1;
  if (falsified == Mutation::kFlags) traced.eflags ^= 1;
  if (falsified == Mutation::kVector) traced_extended[160 + 3 * 16] ^= std::byte{1};
  if (falsified == Mutation::kSignalMask) traced_mask ^= 1;
  if (falsified == Mutation::kMemory) {
    pair_.traced().set_word(traced.rsp, pair_.traced().word(traced.rsp) ^ 0x100);
  }
  const Registers plain = pair_.plain().registers();
  std::vector<std::string> messages = CompareRegisters(traced, plain);
  Append(messages, CompareExtended(traced_extended, pair_.plain().extended_state()));
  const uint64_t plain_mask = pair_.plain().signal_mask();
  if (with_mask && traced_mask != plain_mask) {
    messages.push_back(
        fmt::format("signal mask: traced {:#x}, plain {:#x}", traced_mask, plain_mask));
  }
  Append(messages, compare_some_memory(plain));
  return messages;
}

std::vector<std::string> Comparison::compare_memory() {
  return memory_.compare(pair_.traced(), pair_.plain(), pair_.plain_layout().writable(),
                         pair_.plain().registers());
}

// All writable memory now and then; the stack's top every time.
std::vector<std::string> Comparison::compare_some_memory(const Registers& registers) {
  const auto& lines = pair_.plain_layout().writable();
  if (count_ <= kMemoryFirst || count_ % kMemoryEvery == 0) return compare_memory();
  std::vector<std::string> messages;
  for (MapLine line : lines) {
    if (!line.contains(registers.rsp)) continue;
    line.end = std::min<uint64_t>(line.end, registers.rsp + kStackBytes);
    Append(messages, memory_.compare(pair_.traced(), pair_.plain(), {line}, registers));
  }
  return messages;
}

}  // namespace auxtrail::lockstep
