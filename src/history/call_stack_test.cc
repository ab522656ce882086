// Call stacks from branches: what each odd thing does, and whole runs against a program that knows
// its stack.
#include "history/call_stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace auxtrail::history {
namespace {

using decode::Branch;
using decode::BranchKind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kFunctionBytes = 0x1000;

// Functions lie at multiples of kFunctionBytes; so does nothing below the first.
class Functions : public FunctionFinder {
 public:
  uint64_t start_of(uint64_t ip) override { return ip / kFunctionBytes * kFunctionBytes; }
};

constexpr uint64_t kMain = 0x10'1000;
constexpr uint64_t kF = 0x10'2000;
constexpr uint64_t kG = 0x10'3000;
constexpr uint64_t kH = 0x10'4000;
constexpr uint64_t kLib = 0x70'0000'1000;

Branch call(uint64_t from, uint64_t to) { return {from, to, BranchKind::kCall, false, 5}; }
Branch call_indirect(uint64_t from, uint64_t to) {
  return {from, to, BranchKind::kCallIndirect, false, 3};
}
Branch ret(uint64_t from, uint64_t to) { return {from, to, BranchKind::kReturn, false, 1}; }
Branch jump(uint64_t from, uint64_t to) { return {from, to, BranchKind::kJump, false, 5}; }
Branch jump_indirect(uint64_t from, uint64_t to) {
  return {from, to, BranchKind::kJumpIndirect, false, 2};
}
Branch begin(uint64_t to) { return {0, to, BranchKind::kTraceBegin, false}; }
Branch end(uint64_t from) { return {from, 0, BranchKind::kTraceEnd, true}; }
Branch syscall(uint64_t from) { return {from, 0, BranchKind::kSyscall, true, 2}; }
Branch async(uint64_t from, uint64_t to) { return {from, to, BranchKind::kAsync, false}; }
Branch far(uint64_t from, uint64_t to) { return {from, to, BranchKind::kFar, false, 2}; }

Frame called(uint64_t call_ip, uint64_t entry, uint8_t length = 5) {
  return {FrameKind::kCall, length, call_ip, entry};
}
Frame interrupted(uint64_t ip, uint64_t entry) { return {FrameKind::kInterrupt, 0, ip, entry}; }

class CallStackTest : public ::testing::TestWithParam<bool> {  // with a finder?
 protected:
  void feed(std::initializer_list<Branch> branches) {
    for (const Branch& branch : branches) stack_.on_branch(branch);
  }
  [[nodiscard]] std::vector<Frame> frames() const {
    return {stack_.frames().begin(), stack_.frames().end()};
  }
  Functions functions_;
  CallStack stack_{GetParam() ? &functions_ : nullptr};
};

INSTANTIATE_TEST_SUITE_P(Finder, CallStackTest, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "With" : "Without"; });

TEST_P(CallStackTest, CallsPushAndReturnsPop) {
  feed({begin(kMain), call(kMain + 0x10, kF), call_indirect(kF + 0x20, kG)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF), called(kF + 0x20, kG, 3)));
  feed({ret(kG + 8, kF + 0x23)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
  feed({ret(kF + 0x30, kMain + 0x15), call(kMain + 0x18, kG)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x18, kG)));
  EXPECT_EQ(stack_.lost(), 0);
}

TEST_P(CallStackTest, ReturnsLeadIntoTheUnknown) {
  feed({begin(kG), ret(kG + 8, kF + 0x20), ret(kF + 0x28, kMain + 0x33)});
  EXPECT_THAT(frames(), IsEmpty());
  feed({call(kMain + 0x40, kH)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x40, kH)));
  EXPECT_EQ(stack_.lost(), 0);
}

TEST_P(CallStackTest, UnknownLengthsAreGuessed) {
  Branch from_main = call(kMain + 0x10, kF);
  from_main.length = 0;
  feed({begin(kMain), from_main, call(kF + 0x20, kG), ret(kG + 8, kF + 0x25)});
  EXPECT_EQ(frames().size(), 1);
  feed({ret(kF + 0x30, kMain + 0x17)});
  EXPECT_THAT(frames(), IsEmpty());
}

TEST_P(CallStackTest, CallsToTheNextInstructionAreNone) {
  feed({begin(kMain), call(kMain + 0x10, kF), call(kF + 4, kF + 9)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
}

// main calls setjmp (kLib), then F, F calls G, G calls longjmp, which jumps behind the first call.
TEST_P(CallStackTest, Longjmp) {
  feed({begin(kMain), call(kMain + 0x10, kF), call(kF + 0x10, kLib), ret(kLib + 0x20, kF + 0x15),
        call(kF + 0x20, kG), call(kG + 0x10, kH), call(kH + 0x10, kLib + 0x1000),
        jump_indirect(kLib + 0x1040, kF + 0x15)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
  EXPECT_EQ(stack_.unwound(), 1);
  feed({ret(kF + 0x80, kMain + 0x15)});
  EXPECT_THAT(frames(), IsEmpty());
}

// The same where setjmp was called before the history began.
TEST_P(CallStackTest, LongjmpToBeforeTheHistory) {
  feed({begin(kMain), call(kMain + 0x10, kF), call(kF + 0x20, kG), call(kG + 0x10, kLib),
        jump_indirect(kLib + 0x1040, kF + 0x15)});
  if (GetParam()) {
    EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
  }
  feed({ret(kF + 0x80, kMain + 0x15)});  // heals
  EXPECT_THAT(frames(), IsEmpty());
}

// The unwinder returns to a landing pad of F, which is behind no call.
TEST_P(CallStackTest, ExceptionOverSeveralFrames) {
  feed({begin(kMain), call(kMain + 0x10, kF), call(kF + 0x20, kG), call(kG + 0x10, kH),
        call(kH + 0x10, kLib), call(kLib + 0x10, kLib + 0x1000), ret(kLib + 0x1040, kF + 0x888)});
  if (GetParam()) {
    EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
  }
  feed({ret(kF + 0x890, kMain + 0x15)});
  EXPECT_THAT(frames(), IsEmpty());
}

TEST_P(CallStackTest, ReturnOverSeveralFrames) {
  feed({begin(kMain), call(kMain + 0x10, kF), call(kF + 0x20, kG), call(kG + 0x10, kH),
        ret(kH + 0x40, kMain + 0x15)});
  EXPECT_THAT(frames(), IsEmpty());
  EXPECT_EQ(stack_.unwound(), 1);
}

TEST_P(CallStackTest, TailCallsReplaceTheCallee) {
  feed({begin(kLib), call(kLib + 0x10, kG), ret(kG + 8, kLib + 0x15)});  // so G is known
  feed({call(kLib + 0x20, kF), jump(kF + 0x40, kG)});
  EXPECT_THAT(frames(), ElementsAre(called(kLib + 0x20, kG)));
  feed({ret(kG + 8, kLib + 0x25)});
  EXPECT_THAT(frames(), IsEmpty());
}

TEST_P(CallStackTest, PltStubsAreTailCalls) {
  feed({begin(kMain), call(kMain + 0x10, kF + 0x20), jump_indirect(kF + 0x24, kLib)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kLib)));
}

// Lazy binding: the resolver returns to the function that it found.
TEST_P(CallStackTest, ReturnUsedAsJump) {
  feed({begin(kMain), call(kMain + 4, kG), ret(kG + 8, kMain + 9)});  // so G is known
  feed({call(kMain + 0x10, kLib), call(kLib + 0x20, kLib + 0x1000), ret(kLib + 0x1010, kLib + 0x25),
        ret(kLib + 0x40, kG)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kG)));
  EXPECT_EQ(stack_.lost(), 0);
  feed({ret(kG + 8, kMain + 0x15)});
  EXPECT_THAT(frames(), IsEmpty());
}

// call thunk; thunk: call 1f; ...; 1: mov %rax,(%rsp); ret
TEST_P(CallStackTest, Retpoline) {
  feed({begin(kMain), call(kMain + 0x10, kF), call(kF, kF + 0xc), ret(kF + 0x10, kH)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kH)));
  feed({ret(kH + 8, kMain + 0x15)});
  EXPECT_THAT(frames(), IsEmpty());
}

TEST_P(CallStackTest, PopAndJumpIsAReturn) {
  feed({begin(kMain), call(kMain + 0x10, kF), jump_indirect(kF + 0x100, kMain + 0x15)});
  EXPECT_THAT(frames(), IsEmpty());
}

// A user's trace sees nothing of the kernel: it ends where the signal came, and begins in the
// handler. Its return leads to code that makes a system call, which goes back.
TEST_P(CallStackTest, SignalHandler) {
  feed({begin(kMain), call(kMain + 0x10, kF), end(kF + 0x33), begin(kG)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF), interrupted(kF + 0x33, kG)));
  feed({call(kG + 0x10, kH)});
  EXPECT_EQ(frames().size(), 3);
  feed({ret(kH + 8, kG + 0x15), ret(kG + 0x20, kLib), syscall(kLib + 7), begin(kF + 0x33)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
  EXPECT_EQ(stack_.lost(), 0);
}

TEST_P(CallStackTest, InterruptsAndSystemCallsGoOn) {
  feed({begin(kMain), call(kMain + 0x10, kF), end(kF + 0x33), begin(kF + 0x33), syscall(kF + 0x40),
        begin(kF + 0x42), syscall(kF + 0x50), begin(kF + 0x50)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
}

TEST_P(CallStackTest, KernelCodeHasFramesOfItsOwn) {
  constexpr uint64_t kEntry = 0xffff'ffff'8100'0000;
  feed({begin(kMain), call(kMain + 0x10, kF)});
  stack_.on_branch({kF + 0x20, kEntry, BranchKind::kSyscall, false, 2});
  feed({call(kEntry + 0x10, kEntry + 0x1000), async(kEntry + 0x1004, kEntry + 0x2000)});
  EXPECT_EQ(frames().size(), 4);
  feed({far(kEntry + 0x2040, kEntry + 0x1004), ret(kEntry + 0x1010, kEntry + 0x15),
        far(kEntry + 0x40, kF + 0x22)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
}

// A filter that leaves out the library: calls leave the trace, and it goes on behind them; or in a
// function that the library calls back.
TEST_P(CallStackTest, CallsOutOfTheTraceAndBack) {
  Branch out = call(kF + 0x20, kLib);
  out.ends_trace = true;
  feed({begin(kMain), call(kMain + 0x10, kF), out, begin(kF + 0x25)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
  Branch back = ret(kG + 8, kLib + 0x40);
  back.ends_trace = true;
  feed({out, begin(kG)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF), called(kF + 0x20, kLib),
                                    Frame{FrameKind::kUntraced, 0, 0, kG}));
  feed({back, begin(kF + 0x25)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
}

// Two stacks; main makes coroutine G and goes back and forth with it through swap (kLib), which
// returns on the other stack.
TEST_P(CallStackTest, Coroutines) {
  feed({begin(kMain), call(kMain + 0x10, kF), call(kF + 0x20, kLib), ret(kLib + 0x80, kG),
        call(kG + 0x10, kH), call(kH + 0x10, kLib), ret(kLib + 0x80, kF + 0x25)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
  for (int i = 0; i < 3; ++i) {
    feed({call(kF + 0x30, kLib), ret(kLib + 0x80, kH + 0x15)});
    EXPECT_EQ(frames().back(), called(kG + 0x10, kH)) << "the coroutine's own stack is back";
    feed({call(kH + 0x10, kLib), ret(kLib + 0x80, kF + 0x35)});
    EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
  }
  feed({ret(kF + 0x40, kMain + 0x15)});
  EXPECT_THAT(frames(), IsEmpty());
}

// Tasks of a CPU, in a trace without the kernel.
TEST_P(CallStackTest, ContextSwitches) {
  feed({begin(kMain), call(kMain + 0x10, kF), end(kF + 0x33), begin(kLib), call(kLib + 0x20, kG),
        end(kG + 0x44), begin(kF + 0x33)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
  feed({call(kF + 0x40, kH), syscall(kH + 0x50), begin(kG + 0x44)});
  EXPECT_EQ(frames().back(), called(kLib + 0x20, kG));
  feed({syscall(kG + 0x60), begin(kH + 0x52)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF), called(kF + 0x40, kH)));
}

TEST_P(CallStackTest, LostPacketsAreMarkedUntilAReturnFits) {
  feed({begin(kMain), call(kMain + 0x10, kF), call(kF + 0x20, kG)});
  stack_.on_gap({decode::GapKind::kOverflow, kG, kH + 4, 0});
  feed({begin(kH + 4)});
  const Frame unknown{FrameKind::kUnknown, 0, 0, kH + 4};
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF), called(kF + 0x20, kG), unknown));
  EXPECT_EQ(stack_.lost(), 1);
  feed({ret(kH + 8, kF + 0x25)});
  EXPECT_THAT(frames(), ElementsAre(called(kMain + 0x10, kF)));
  feed({begin(kH)});  // without a word about the gap
  EXPECT_EQ(frames().back().kind, FrameKind::kUnknown);
}

TEST_P(CallStackTest, DepthIsBounded) {
  feed({begin(kMain)});
  for (size_t i = 0; i < 3 * CallStack::kMaxDepth; ++i) feed({call(kMain + 0x10, kMain)});
  EXPECT_LE(frames().size(), CallStack::kMaxDepth);
  EXPECT_GT(frames().size(), CallStack::kMaxDepth / 2);
  feed({ret(kMain + 0x20, kMain + 0x15)});
  EXPECT_EQ(stack_.lost(), 0);
}

// A program that knows its stack. Functions call those behind them only, if `recursive` is not set.
class Program {
 public:
  explicit Program(unsigned seed, bool recursive, bool odd, bool lengths)
      : random_(seed), recursive_(recursive), odd_(odd), lengths_(lengths) {}

  // The next branch; what the stack is then, as far as the history tells, is truth().
  Branch step() {
    if (!begun_) {
      begun_ = true;
      return begin(ip_ = function(0) + 0x10);
    }
    const size_t choice = below(odd_ ? 20 : 12);
    if (choice < 5 && depth_left()) return make_call();
    if (choice < 9) return make_return();
    if (choice < 11) return local_jump(choice == 10);
    if (choice == 11) return local_call();
    if (choice < 14 && depth_left()) return make_tail_call();
    if (choice < 16 && depth_left() && !jumpable().empty()) return make_longjmp();
    if (choice < 18 && !truth_.empty()) return throw_exception();
    return local_jump(true);
  }
  [[nodiscard]] const std::vector<Frame>& truth() const { return truth_; }

 private:
  static constexpr size_t kFunctions = 60;
  static uint64_t function(size_t index) { return 0x40'0000 + index * kFunctionBytes; }
  // Kinds of places lie apart: no jump leads by chance where a call returns to.
  uint64_t place(uint64_t base, uint64_t size) { return here() + base + below(size) / 16 * 16; }
  uint64_t here() const { return ip_ / kFunctionBytes * kFunctionBytes; }
  size_t index() const { return (here() - function(0)) / kFunctionBytes; }
  size_t below(size_t bound) { return random_() % bound; }
  bool depth_left() const { return recursive_ ? truth_.size() < 300 : index() + 2 < kFunctions; }
  size_t other() {
    return recursive_ ? below(kFunctions) : index() + 1 + below(kFunctions - 1 - index());
  }

  Branch make_call() {
    const bool indirect = below(2) == 0;
    Branch branch = indirect ? call_indirect(place(0x100, 0x300), function(other()))
                             : call(place(0x100, 0x300), function(other()));
    truth_.push_back(called(branch.from, branch.to, lengths_ ? branch.length : 0));
    lengths_seen_.push_back(branch.length);
    ids_.push_back(next_id_++);
    if (!lengths_) branch.length = 0;
    ip_ = branch.to;
    return branch;
  }
  Branch make_return() {
    const uint64_t from = place(0xc00, 0x100);
    if (truth_.empty()) {  // into the unknown
      ip_ = function(below(recursive_ ? kFunctions : index() + 1)) + 0x405;
      ids_ = {next_id_++};
      return ret(from, ip_);
    }
    ip_ = truth_.back().call_ip + lengths_seen_.back();
    pop();
    resumed_[ip_] = {truth_.size(), ids_.back()};
    return ret(from, ip_);
  }
  void pop() {
    truth_.pop_back();
    lengths_seen_.pop_back();
    ids_.pop_back();
  }
  Branch local_jump(bool indirect) {
    const uint64_t from = place(0x500, 0x100);
    ip_ = place(0x600, 0x100);
    return indirect ? jump_indirect(from, ip_) : jump(from, ip_);
  }
  Branch local_call() {  // PIC
    Branch branch = call(place(0x700, 0x100), 0);
    branch.to = ip_ = branch.from + 5;
    return branch;
  }
  Branch make_tail_call() {
    const uint64_t from = place(0x800, 0x100);
    ip_ = function(other());
    if (!truth_.empty()) truth_.back().entry_ip = ip_;
    ids_.back() = next_id_++;
    return below(2) == 0 ? jump(from, ip_) : jump_indirect(from, ip_);
  }
  // Places where calls returned to, in functions that are still running further out.
  std::vector<uint64_t> jumpable() const {
    std::vector<uint64_t> found;
    for (const auto& [ip, where] : resumed_) {
      if (where.first < truth_.size() && ids_[where.first] == where.second &&
          truth_[where.first].call_ip + lengths_seen_[where.first] != ip) {
        found.push_back(ip);
      }
    }
    return found;
  }
  Branch make_longjmp() {
    const auto places = jumpable();
    const uint64_t to = places[below(places.size())];
    const uint64_t from = place(0x900, 0x100);
    while (truth_.size() > resumed_[to].first) pop();
    ip_ = to;
    return jump_indirect(from, to);
  }
  Branch throw_exception() {
    const uint64_t from = place(0xa00, 0x100);
    const size_t level = below(truth_.size());
    const uint64_t call_ip = truth_[level].call_ip;
    while (truth_.size() > level) pop();
    ip_ = call_ip;
    ip_ = place(0xd00, 0x100);
    return ret(from, ip_);
  }

  std::minstd_rand random_;
  bool recursive_;
  bool odd_;
  bool lengths_;
  bool begun_ = false;
  uint64_t ip_ = 0;
  std::vector<Frame> truth_;
  std::vector<uint8_t> lengths_seen_;
  std::vector<uint64_t> ids_ = {0};
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::pair<size_t, uint64_t>> resumed_;
};

void expect_truth(unsigned seed, bool recursive, bool odd, bool lengths, bool with_finder) {
  Functions functions;
  CallStack stack(with_finder ? &functions : nullptr);
  Program program(seed, recursive, odd, lengths);
  size_t deepest = 0;
  for (int i = 0; i < 3000; ++i) {
    stack.on_branch(program.step());
    const std::vector<Frame> frames(stack.frames().begin(), stack.frames().end());
    ASSERT_EQ(frames, program.truth()) << "seed " << seed << ", branch " << i;
    deepest = std::max(deepest, frames.size());
  }
  EXPECT_GT(deepest, 2);
}

TEST(CallStackProgramTest, NestedCallsAreExact) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    for (const bool recursive : {false, true}) {
      expect_truth(seed, recursive, false, true, false);
      expect_truth(seed, recursive, false, false, false);
      expect_truth(seed, recursive, false, true, true);
    }
  }
}

TEST(CallStackProgramTest, OddThingsAreExactWithFunctions) {
  for (unsigned seed = 1; seed <= 100; ++seed) expect_truth(seed, false, true, true, true);
}

// Without functions: what lies above the newest mark is right, and below it when the function
// returns in which it became wrong.
TEST(CallStackProgramTest, WithoutFunctionsTheStackIsMarkedAndHeals) {
  size_t wrong = 0;
  size_t unmarked = 0;  // after a longjmp to a place that was forgotten
  for (unsigned seed = 1; seed <= 100; ++seed) {
    CallStack stack;
    Program program(seed, false, true, true);
    constexpr size_t kRight = ~size_t{0};
    size_t wrong_level = kRight;  // the outermost that the flow came to meanwhile
    for (int i = 0; i < 3000; ++i) {
      const Branch branch = program.step();
      stack.on_branch(branch);
      const auto frames = stack.frames();
      const auto& truth = program.truth();
      size_t right = 0;
      while (right < std::min(frames.size(), truth.size()) &&
             frames[frames.size() - 1 - right].call_ip == truth[truth.size() - 1 - right].call_ip) {
        ++right;
      }
      const bool same = right == frames.size() && right == truth.size();
      if (!same && right < frames.size()) {
        const bool marked = frames[frames.size() - 1 - right].kind == FrameKind::kUnknown;
        ++(marked ? wrong : unmarked);
      }
      const bool is_exception = branch.from % kFunctionBytes < 0xc00;
      if (branch.kind == BranchKind::kReturn && !is_exception && truth.size() < wrong_level &&
          wrong_level != kRight) {
        ASSERT_TRUE(same) << "seed " << seed << ", branch " << i;
      }
      wrong_level = same ? kRight : std::min(wrong_level, truth.size());
    }
  }
  EXPECT_GT(wrong, 0);
  EXPECT_LT(unmarked, wrong / 20);
}

}  // namespace
}  // namespace auxtrail::history
