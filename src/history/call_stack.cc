// What each branch does to the stack.
#include "history/call_stack.h"

#include <algorithm>
#include <utility>

namespace auxtrail::history {
namespace {

using decode::Branch;
using decode::BranchKind;

constexpr uint64_t kMinCallBytes = 2;
constexpr uint64_t kMaxCallBytes = 15;
constexpr uint64_t kPicCallBytes = 5;   // call rel32
constexpr uint64_t kStubBytes = 16;     // a PLT's
constexpr uint64_t kThunkBytes = 64;    // a retpoline's
constexpr uint64_t kFarAway = 1 << 20;  // no function is as large

uint64_t distance(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

}  // namespace

bool Frame::returns_to(uint64_t ip) const {
  const bool is_behind = length != 0
                             ? ip == call_ip + length
                             : ip - call_ip - kMinCallBytes <= kMaxCallBytes - kMinCallBytes;
  switch (kind) {
    case FrameKind::kCall:
      return is_behind;
    case FrameKind::kSyscall:
      return is_behind || ip == call_ip;  // it may be restarted
    case FrameKind::kInterrupt:
      return ip == call_ip;
    default:
      return false;
  }
}

void CallStack::clear() {
  frames_.clear();
  levels_.assign(1, {next_id_++, 0, 0});
  parked_.clear();
  left_ = Left::kNot;
  begun_ = false;
  unwound_ = lost_ = 0;
  returns_.fill(0);
  vague_returns_ = 0;
  resumed_.fill({});
  called_.fill(0);
  starts_.fill({});
}

void CallStack::on_branch(const Branch& branch) {
  if (branch.kind == BranchKind::kTraceBegin) return enter(branch.to);
  if (!begun_) restart(branch.from);
  begun_ = true;
  extend(branch.from);
  if (branch.ends_trace) return leave(branch);
  switch (branch.kind) {
    case BranchKind::kCall:
    case BranchKind::kCallIndirect:
    case BranchKind::kSyscall:
      return call(branch);
    case BranchKind::kReturn:
      return return_to(branch.from, branch.to);
    case BranchKind::kJump:
      return jump_to(branch.from, branch.to, false);
    case BranchKind::kJumpIndirect:
      return jump_to(branch.from, branch.to, true);
    case BranchKind::kAsync:
      // A transaction that is aborted goes on in its own function.
      if (start_of(branch.to) != 0 && start_of(branch.to) == start_of(branch.from)) return;
      return push({FrameKind::kInterrupt, 0, branch.from, branch.to});
    case BranchKind::kFar:
      return far_to(branch.to);
    default:
      return;
  }
}

void CallStack::on_gap(const decode::Gap& gap) {
  if (gap.kind != decode::GapKind::kDisabled) left_ = Left::kLost;
}

void CallStack::call(const Branch& branch) {
  const bool is_syscall = branch.kind == BranchKind::kSyscall;
  const uint64_t length = branch.length != 0 ? branch.length : kPicCallBytes;
  if (branch.kind == BranchKind::kCall && branch.to == branch.from + length) return;
  push(
      {is_syscall ? FrameKind::kSyscall : FrameKind::kCall, branch.length, branch.from, branch.to});
  if (!is_syscall) called_[slot(branch.to)] = branch.to;
}

void CallStack::return_to(uint64_t from, uint64_t to) {
  if (!frames_.empty() && frames_.back().returns_to(to)) return pop(to);
  if (unwind(to) || switch_to(to)) return;
  if (frames_.empty()) return restart(to);  // out of what was unknown, into what is
  if (longjmp_to(to)) return;
  const Frame top = frames_.back();
  // A retpoline overwrites the return address of a call to the next few bytes.
  const bool is_thunk = top.kind == FrameKind::kCall &&
                        distance(top.call_ip, top.entry_ip) <= kThunkBytes &&
                        distance(top.call_ip, from) <= kThunkBytes;
  if (is_thunk) truncate(frames_.size() - 1, false);
  // Nobody called a signal's handler: it returns to what ends it.
  const bool is_handler = top.kind == FrameKind::kInterrupt;
  if (is_thunk || is_handler || is_entry(to) || was_called(to)) return tail_call(to);
  if (unwind_to_function(from, to)) return;
  if (top.kind != FrameKind::kUntraced) return nowhere(to);
  truncate(frames_.size() - 1, false);
  restart(to);
}

void CallStack::jump_to(uint64_t from, uint64_t to, bool indirect) {
  Level& level = levels_.back();
  if (!indirect && level.low <= to && to <= level.high) return;
  if (finder_ != nullptr) {
    const uint64_t start = start_of(to);
    if (start != 0 && start == start_of(from)) return;
    if (start == to) return tail_call(to);
  }
  if (!indirect) {
    if (finder_ == nullptr && (was_called(to) || distance(from, to) > kFarAway)) tail_call(to);
    return;
  }
  if (level.low <= to && to <= level.high) return;
  if (unwind(to) || longjmp_to(to) || switch_to(to)) return;
  if (finder_ != nullptr) {
    (void)unwind_to_function(from, to);
    return;
  }
  const uint64_t entry = frames_.empty() ? 0 : frames_.back().entry_ip;
  const bool is_stub = entry != 0 && from - entry <= kStubBytes;
  if (is_stub || was_called(to) || distance(from, to) > kFarAway) tail_call(to);
}

// iret, sysret and the like: back to what was interrupted, or to another task.
void CallStack::far_to(uint64_t to) {
  if (unwind(to) || switch_to(to)) return;
  park(0);
  restart(to);
}

// Tracing ends with this branch. Of a call it is known that it came back if tracing goes on behind
// it; of an interruption that it was one if tracing goes on elsewhere.
void CallStack::leave(const Branch& branch) {
  switch (branch.kind) {
    case BranchKind::kCall:
    case BranchKind::kCallIndirect:
    case BranchKind::kSyscall:
      left_ = Left::kCalled;
      return call(branch);
    case BranchKind::kTraceEnd:
    case BranchKind::kAsync:
      left_ = Left::kCalled;
      return push({FrameKind::kInterrupt, 0, branch.from, 0});
    case BranchKind::kReturn:
      left_ = Left::kReturned;
      // What was entered from outside returns there.
      if (!frames_.empty() && frames_.back().kind == FrameKind::kUntraced) {
        truncate(frames_.size() - 1, false);
      }
      return;
    default:
      left_ = Left::kJumped;
      return;
  }
}

// Tracing begins or goes on.
void CallStack::enter(uint64_t to) {
  const Left left = std::exchange(left_, Left::kNot);
  if (!std::exchange(begun_, true)) return restart(to);
  if (left == Left::kNot || left == Left::kLost) return nowhere(to);
  if (unwind(to) || switch_to(to)) return;
  if (left == Left::kReturned && frames_.empty()) return restart(to);
  if (!frames_.empty()) {
    Frame& top = frames_.back();
    if (top.kind == FrameKind::kInterrupt && top.entry_ip == 0) {  // a signal's handler, perhaps
      top.entry_ip = to;
      return restart(to);
    }
    if (top.kind == FrameKind::kUntraced) {
      top.entry_ip = to;
      return restart(to);
    }
  }
  push({FrameKind::kUntraced, 0, 0, to});
}

void CallStack::nowhere(uint64_t to) {
  ++lost_;
  if (!frames_.empty() && frames_.back().kind == FrameKind::kUnknown) {
    frames_.back().entry_ip = to;
    return restart(to);
  }
  push({FrameKind::kUnknown, 0, 0, to});
}

void CallStack::tail_call(uint64_t to) {
  if (!frames_.empty()) frames_.back().entry_ip = to;
  restart(to);
}

// To behind the innermost call that returns to `to`.
bool CallStack::unwind(uint64_t to) {
  if (!may_return_to(to)) return false;
  for (size_t i = frames_.size(); i-- != 0;) {
    if (!frames_[i].returns_to(to)) continue;
    if (i + 1 != frames_.size()) truncate(i + 1, true);
    pop(to);
    return true;
  }
  return false;
}

// To the innermost level that runs the function which `to` lies in.
bool CallStack::unwind_to_function(uint64_t from, uint64_t to) {
  for (size_t level = frames_.size() + 1; level-- != 0;) {
    const uint64_t at = level == frames_.size() ? from : frames_[level].call_ip;
    if (at == 0 || !in_level(level, at, to)) continue;
    if (level != frames_.size()) truncate(level, true);
    return true;
  }
  return false;
}

// To where a call returned to before, in a level further out.
bool CallStack::longjmp_to(uint64_t to) {
  const Resumed& resumed = resumed_[slot(to)];
  if (resumed.ip != to || resumed.level >= frames_.size() ||
      levels_[resumed.level].id != resumed.id) {
    return false;
  }
  truncate(resumed.level, true);
  return true;
}

// To another stack, behind the newest call there.
bool CallStack::switch_to(uint64_t to) {
  for (size_t i = parked_.size(); i-- != 0;) {
    if (!parked_[i].frames.back().returns_to(to)) continue;
    Parked found = std::move(parked_[i]);
    parked_.erase(parked_.begin() + static_cast<std::ptrdiff_t>(i));
    park(0);
    levels_ = std::move(found.levels);
    frames_ = std::move(found.frames);
    for (const Frame& frame : frames_) count(frame, 1);
    pop(to);
    return true;
  }
  return false;
}

void CallStack::push(const Frame& frame) {
  if (frames_.size() >= kMaxDepth) forget_outermost();
  frames_.push_back(frame);
  levels_.push_back({next_id_++, frame.entry_ip, frame.entry_ip});
  count(frame, 1);
}

// The newest frame returned to `to`.
void CallStack::pop(uint64_t to) {
  truncate(frames_.size() - 1, false);
  extend(to);
  resumed_[slot(to)] = {to, static_cast<uint32_t>(frames_.size()), levels_.back().id};
}

void CallStack::truncate(size_t depth, bool park_them) {
  if (park_them) {
    ++unwound_;
    return park(depth);
  }
  for (size_t i = depth; i < frames_.size(); ++i) count(frames_[i], -1);
  frames_.resize(depth);
  levels_.resize(depth + 1);
}

// Takes away the frames above `depth`; they may be another stack's.
void CallStack::park(size_t depth) {
  if (frames_.size() > depth) {
    const auto first = static_cast<std::ptrdiff_t>(depth);
    parked_.push_back(
        {{frames_.begin() + first, frames_.end()}, {levels_.begin() + first, levels_.end()}});
    // Nobody knows what the lowest of these levels did before.
    parked_.back().levels.front().id = next_id_++;
    if (parked_.size() > kMaxParked) parked_.pop_front();
  }
  truncate(depth, false);
}

void CallStack::forget_outermost() {
  const size_t surplus = kMaxDepth / 4;
  for (size_t i = 0; i < surplus; ++i) count(frames_[i], -1);
  const auto end = static_cast<std::ptrdiff_t>(surplus);
  frames_.erase(frames_.begin(), frames_.begin() + end);
  levels_.erase(levels_.begin(), levels_.begin() + end);
  for (Level& level : levels_) level.id = next_id_++;  // their depth is another one now
}

void CallStack::count(const Frame& frame, int change) {
  const auto add = [change](uint32_t& counter) { counter += static_cast<uint32_t>(change); };
  if (frame.kind == FrameKind::kUntraced || frame.kind == FrameKind::kUnknown) return;
  if (frame.kind != FrameKind::kCall) add(returns_[slot(frame.call_ip)]);
  if (frame.kind == FrameKind::kInterrupt) return;
  add(frame.length != 0 ? returns_[slot(frame.call_ip + frame.length)] : vague_returns_);
}

bool CallStack::may_return_to(uint64_t to) const {
  return vague_returns_ != 0 || returns_[slot(to)] != 0;
}

// The newest level's function is another one now.
void CallStack::restart(uint64_t ip) {
  levels_.back().low = levels_.back().high = ip;
  levels_.back().id = next_id_++;
}

void CallStack::extend(uint64_t ip) {
  Level& level = levels_.back();
  if (level.low == 0 || distance(level.low, ip) > kFarAway) {
    level.low = level.high = ip;
    return;
  }
  level.low = std::min(level.low, ip);
  level.high = std::max(level.high, ip);
}

uint64_t CallStack::start_of(uint64_t ip) {
  if (finder_ == nullptr || ip == 0) return 0;
  KnownStart& known = starts_[slot(ip)];
  if (known.ip != ip) known = {ip, finder_->start_of(ip)};
  return known.start;
}

bool CallStack::is_entry(uint64_t ip) { return ip != 0 && start_of(ip) == ip; }

// Whether `ip` lies in the function that `at` lies in, which the level runs.
bool CallStack::in_level(size_t level, uint64_t at, uint64_t ip) {
  if (finder_ != nullptr) return start_of(ip) != 0 && start_of(ip) == start_of(at);
  return levels_[level].low <= ip && ip <= levels_[level].high;
}

}  // namespace auxtrail::history
