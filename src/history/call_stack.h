// CallStack: who called whom, from the branches of one flow alone: no frame pointers, no unwind
// tables, and exact for code that has neither.
//
//   CallStack stack;
//   for (const decode::Branch& branch : history.branches()) stack.on_branch(branch);
//   for (auto frame = stack.frames().rbegin(); ...)   // innermost first; then comes the unknown
//
// A history begins in the middle of things: who called the function in which it begins is not
// known. So further out than the first frame there is always an *unknown* part, and a return beyond
// the first frame leads into it.
//
//   unknown ◄── frames()[0] ◄── ... ◄── frames().back() ◄── where the flow is
//               call site,              call site,
//               entry of callee         entry of callee
//
// Calls push, and a return to the place behind the newest call pops. What else happens:
//
//   return elsewhere         to behind an outer call: all frames between are gone (exceptions do
//                            that, longjmp, a frame that another stack's function was called from)
//   return used as a jump    to a function's entry (lazy binding, retpolines): a tail call
//   jump, indirect           to where a call returned to before, in an outer frame: longjmp; to
//                            behind a call: a return made by hand
//   jump to a function       tail call: the newest frame's callee is replaced
//   call to behind itself    no frame: position independent code reads its own address
//   other stacks             frames that went away all at once are *parked*: when the flow returns
//                            to behind the newest of them, their stack is the current one again
//                            (coroutines, tasks of a CPU), and the one that was current is parked
//   interrupts, signals      frames that end where the flow was interrupted
//   tracing goes on          behind the system call or call with which it was left, or at any outer
//                            frame; else a frame of kind kUntraced
//   all else, lost packets   a frame of kind kUnknown: what lies further out may be wrong, until a
//                            return leads there
//
// With a FunctionFinder, exceptions' landing pads and the longjmp whose setjmp is older than the
// history are found at once, and tail calls for certain; without, the next return that matches puts
// things right. Memory is bounded. Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "decode/branch.h"
#include "decode/branch_decoder.h"

namespace auxtrail::history {

enum class FrameKind : uint8_t {
  kCall,       // near call
  kSyscall,    // into the kernel
  kInterrupt,  // interrupt, exception or signal: the flow was at call_ip
  kUntraced,   // entered from code that is not traced; no call_ip
  kUnknown,    // nobody knows how the flow came to entry_ip; no call_ip
};

struct Frame {
  FrameKind kind = FrameKind::kCall;
  uint8_t length = 0;     // of the call instruction, bytes; 0: unknown
  uint64_t call_ip = 0;   // the call instruction; 0: none
  uint64_t entry_ip = 0;  // where it led, or what was jumped to from there; 0: unknown

  [[nodiscard]] bool returns_to(uint64_t ip) const;
  bool operator==(const Frame&) const = default;
};

// Knows where functions begin.
class FunctionFinder {
 public:
  virtual ~FunctionFinder() = default;
  // Of the function that `ip` lies in; 0 if none is known.
  virtual uint64_t start_of(uint64_t ip) = 0;
};

class CallStack {
 public:
  // Frames; beyond them the outermost ones become unknown.
  static constexpr size_t kMaxDepth = 1 << 16;

  // `finder`, if any, must outlive the stack.
  explicit CallStack(FunctionFinder* finder = nullptr) : finder_(finder) { clear(); }

  // Forgets everything.
  void clear();

  // Branches and gaps in the order of the flow, markers included. A gap may be left out: the
  // markers tell, too, but for packets that were lost while tracing was off.
  void on_branch(const decode::Branch& branch);
  void on_gap(const decode::Gap& gap);

  // Outermost first. What lies further out is unknown.
  [[nodiscard]] std::span<const Frame> frames() const { return frames_; }

  // How often more than one frame went at once, and how often the flow went somewhere for no known
  // reason.
  [[nodiscard]] uint64_t unwound() const { return unwound_; }
  [[nodiscard]] uint64_t lost() const { return lost_; }

 private:
  static constexpr size_t kMaxParked = 16;
  static constexpr size_t kTableSize = 1024;  // of each of the small tables, entries

  // A level is what runs above so many frames: level 0 is the unknown's function.
  struct Level {
    uint32_t id = 0;
    uint64_t low = 0;  // addresses executed in it
    uint64_t high = 0;
  };
  struct Parked {
    std::vector<Frame> frames;
    std::vector<Level> levels;
  };
  // A return led to `ip`, in a level that may be there still.
  struct Resumed {
    uint64_t ip = 0;
    uint32_t level = 0;
    uint32_t id = 0;
  };
  enum class Left : uint8_t { kNot, kCalled, kReturned, kJumped, kLost };

  void call(const decode::Branch& branch);
  void return_to(uint64_t from, uint64_t to);
  void jump_to(uint64_t from, uint64_t to, bool indirect);
  void far_to(uint64_t to);
  void leave(const decode::Branch& branch);
  void enter(uint64_t to);
  void nowhere(uint64_t to);
  void tail_call(uint64_t to);
  bool unwind(uint64_t to);
  bool unwind_to_function(uint64_t from, uint64_t to);
  bool longjmp_to(uint64_t to);
  bool switch_to(uint64_t to);

  void push(const Frame& frame);
  void pop(uint64_t to);
  void truncate(size_t depth, bool park);
  void park(size_t depth);
  void forget_outermost();
  void count(const Frame& frame, int change);
  void restart(uint64_t ip);
  void extend(uint64_t ip);

  [[nodiscard]] bool may_return_to(uint64_t to) const;
  uint64_t start_of(uint64_t ip);
  bool is_entry(uint64_t ip);
  bool in_level(size_t level, uint64_t at, uint64_t ip);
  bool was_called(uint64_t ip) const { return called_[slot(ip)] == ip; }
  static size_t slot(uint64_t ip) { return (ip * 0x9e3779b97f4a7c15) >> 54; }
  static_assert(kTableSize == size_t{1} << (64 - 54));

  FunctionFinder* finder_;
  std::vector<Frame> frames_;
  std::vector<Level> levels_;  // one more than frames
  std::deque<Parked> parked_;  // newest last
  Left left_ = Left::kNot;
  bool begun_ = false;
  uint32_t next_id_ = 0;
  uint64_t unwound_ = 0;
  uint64_t lost_ = 0;
  // How many frames return to an address with this slot, and to who knows where.
  std::array<uint32_t, kTableSize> returns_{};
  uint32_t vague_returns_ = 0;
  std::array<Resumed, kTableSize> resumed_{};
  std::array<uint64_t, kTableSize> called_{};
  struct KnownStart {
    uint64_t ip = 0;
    uint64_t start = 0;
  };
  std::array<KnownStart, kTableSize> starts_{};
};

}  // namespace auxtrail::history
