// InstructionGaps: runs a function with an interruption in any chosen gap between two of its
// instructions, as an NMI would come there. For tests; x86-64, one thread.
//
// record() runs the function with the trap flag set, and notes the address of every instruction it
// executes. A gap is then "before the n-th arrival at this address" (and, inside a repeated string
// instruction, so many steps after it), so that later runs go at full speed up to a breakpoint
// there: stepping through all the way costs some 20 microseconds an instruction, and the number of
// steps grows with the square of the gaps.
//
// The function that interrupts may itself be interrupted in a gap of its own: levels.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace auxtrail::pmu::testing {

using Addresses = std::vector<uint64_t>;

struct Gap {
  uint64_t address = 0;
  uint64_t arrivals_before = 0;
  uint64_t steps_inside = 0;  // of a repeated instruction
};

// The gap before instruction `at` of a recorded path.
inline Gap gap_of(const Addresses& path, size_t at) {
  Gap gap{path[at], 0, 0};
  while (at > 0 && path[at - 1] == gap.address) {
    --at;
    ++gap.steps_inside;
  }
  for (size_t i = 0; i < at; ++i) {
    gap.arrivals_before += path[i] == gap.address && (i == 0 || path[i - 1] != gap.address);
  }
  return gap;
}

[[gnu::noinline]] inline void set_trap_flag(bool on) {
  constexpr uint64_t kTrapFlag = 0x100;
  const uint64_t flags = __builtin_ia32_readeflags_u64();
  __builtin_ia32_writeeflags_u64(on ? flags | kTrapFlag : flags & ~kTrapFlag);
}

class InstructionGaps {
 public:
  static constexpr int kLevels = 2;
  // Level 0 is the path; level n interrupts level n - 1.
  using Function = void (*)(void* context, int level);

  InstructionGaps(Function function, void* context) : function_(function), context_(context) {
    current_ = this;
    recorded_.reserve(kMostRecorded);
    struct sigaction action {};
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;  // traps come inside of the handler, too
    sigaction(SIGTRAP, &action, &before_);
  }
  ~InstructionGaps() {
    sigaction(SIGTRAP, &before_, nullptr);
    current_ = nullptr;
  }
  InstructionGaps(const InstructionGaps&) = delete;
  InstructionGaps& operator=(const InstructionGaps&) = delete;

  // The instructions of the path.
  Addresses record() {
    record_level(0);
    return recorded_;
  }
  // And those of level 1, in a gap of it.
  Addresses record_inside(const Gap& gap) {
    record_inside_ = true;
    run(gap, nullptr);
    record_inside_ = false;
    return recorded_;
  }

  // Runs the path, interrupted in `gap`; what interrupts is interrupted in `inner`, if given.
  // Returns how many levels were reached: a path may turn out not to come by.
  int run(const Gap& gap, const Gap* inner) {
    reached_ = 0;
    levels_[1].wanted = inner != nullptr;
    if (inner != nullptr) levels_[1].gap = *inner;
    levels_[0].gap = gap;
    arm(0);
    invoke(0);
    disarm(0);
    return reached_;
  }

 private:
  enum class State { kOff, kAtBreakpoint, kSteppingOver, kSteppingInside };
  struct Level {
    Gap gap;
    bool wanted = true;
    State state = State::kOff;
    uint64_t left = 0;  // arrivals, or steps
    uint8_t instruction = 0;
  };
  static constexpr size_t kMostRecorded = 1 << 16;
  static constexpr uint8_t kInt3 = 0xcc;
  static constexpr int64_t kTrapFlag = 0x100;

  // The one way into all levels: what is recorded begins and ends here.
  [[gnu::noinline]] void invoke(int level) {
    inside_ = true;
    function_(context_, level);
    inside_ = false;
  }
  void record_level(int level) {
    recorded_.clear();
    recording_ = true;
    set_trap_flag(true);
    invoke(level);
    set_trap_flag(false);
    recording_ = false;
  }

  static uint8_t& byte_at(uint64_t address) { return *reinterpret_cast<uint8_t*>(address); }

  void plant(Level& level) {
    const uint64_t page = level.gap.address & ~uint64_t{4095};
    if (page != writable_page_) {
      mprotect(reinterpret_cast<void*>(page), 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
      writable_page_ = page;
    }
    level.instruction = byte_at(level.gap.address);
    byte_at(level.gap.address) = kInt3;
    level.state = State::kAtBreakpoint;
  }
  void unplant(Level& level) { byte_at(level.gap.address) = level.instruction; }

  void arm(int at) {
    Level& level = levels_[at];
    level.left = level.gap.arrivals_before;
    plant(level);
  }
  void disarm(int at) {
    Level& level = levels_[at];
    if (level.state == State::kAtBreakpoint) unplant(level);
    level.state = State::kOff;
  }

  void fire(int at) {
    levels_[at].state = State::kOff;
    reached_ = at + 1;
    level_ = at + 1;
    const bool inner = level_ < kLevels && levels_[level_].wanted;
    if (inner) arm(level_);
    record_inside_ ? record_level(level_) : invoke(level_);
    if (inner) disarm(level_);
    level_ = at;
  }

  // Returns true if the next instruction is to be stepped.
  bool trapped(uint64_t& address) {
    const int at = level_;
    Level& level = levels_[at];
    switch (level.state) {
      case State::kOff:
        return false;
      case State::kAtBreakpoint:
        unplant(level);
        address = level.gap.address;
        if (level.left != 0) {
          --level.left;
          level.state = State::kSteppingOver;
          return true;
        }
        level.left = level.gap.steps_inside;
        if (level.left == 0) break;
        level.state = State::kSteppingInside;
        return true;
      case State::kSteppingOver:
        if (address == level.gap.address) return true;  // a repeated instruction, not done yet
        plant(level);
        return false;
      case State::kSteppingInside:
        if (--level.left != 0) return true;
        break;
    }
    fire(at);
    return false;
  }

  static void on_trap(int, siginfo_t*, void* raw) {
    auto& registers = static_cast<ucontext_t*>(raw)->uc_mcontext.gregs;
    auto address = static_cast<uint64_t>(registers[REG_RIP]);
    InstructionGaps& self = *current_;
    if (self.recording_) {
      if (self.inside_ && self.recorded_.size() < kMostRecorded) self.recorded_.push_back(address);
      return;
    }
    const bool step = self.trapped(address);
    registers[REG_RIP] = static_cast<int64_t>(address);
    registers[REG_EFL] = step ? registers[REG_EFL] | kTrapFlag : registers[REG_EFL] & ~kTrapFlag;
  }

  static inline InstructionGaps* current_ = nullptr;
  Function function_;
  void* context_;
  struct sigaction before_ {};
  Level levels_[kLevels];
  int level_ = 0;
  int reached_ = 0;
  bool recording_ = false;
  bool record_inside_ = false;
  volatile bool inside_ = false;
  Addresses recorded_;
  uint64_t writable_page_ = 0;
};

}  // namespace auxtrail::pmu::testing
