// What is on every decoder's stack, against a model of both kinds of decoders.
#include "unit/return_stack.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace auxtrail::unit {
namespace {

// A decoder's: libipt leaves its stack alone at a return that is not compressed, perf pops.
class Decoder {
 public:
  explicit Decoder(bool pops) : pops_(pops) {}
  void call(uint64_t returns_to) {
    stack_.push_back(returns_to);
    if (!pops_ && stack_.size() > 64) stack_.pop_front();
  }
  void uncompressed() {
    if (pops_ && !stack_.empty()) stack_.pop_back();
  }
  // Where a compressed return leads; 0 if it knows none.
  uint64_t compressed() {
    if (stack_.empty()) return 0;
    const uint64_t target = stack_.back();
    stack_.pop_back();
    return target;
  }

 private:
  bool pops_;
  std::deque<uint64_t> stack_;
};

TEST(ReturnStack, EveryDecoderKnowsWhereACompressedReturnLeads) {
  std::mt19937_64 random(3);
  ReturnStack::Slots slots{};
  ReturnStack returns(slots);
  Decoder libipt(false);
  Decoder perf(true);
  std::deque<uint64_t> program;  // its real stack
  uint64_t compressed = 0;
  uint64_t in_all = 0;
  for (int i = 0; i < 1000000; ++i) {
    const uint64_t what = random() % 1000;
    // Calls and returns in phases, so that it gets deep; few addresses, so that chance could help.
    const bool goes_down = (i / 300) % 2 == 0;
    if (what < (goes_down ? 700u : 300u)) {
      uint64_t returns_to[kMaxPendingCalls] = {};
      const auto calls = static_cast<uint32_t>(1 + random() % kMaxPendingCalls);
      for (uint32_t k = 0; k < calls; ++k) {
        returns_to[k] = 0x1000 + random() % 4;
        program.push_back(returns_to[k]);
        libipt.call(returns_to[k]);
        perf.call(returns_to[k]);
      }
      returns.push(returns_to, calls);
    } else if (what == 999) {
      returns.clear();  // a gap or a PSB; the program's stack becomes another
      program.clear();
    } else {
      uint64_t target = 0x2000 + random() % 4;  // nobody called
      if (!program.empty()) {
        if (what < 990) target = program.back();  // else a return that leads elsewhere
        program.pop_back();
      }
      ++in_all;
      if (returns.pop(target)) {
        ++compressed;
        ASSERT_EQ(libipt.compressed(), target) << i;
        ASSERT_EQ(perf.compressed(), target) << i;
      } else {
        libipt.uncompressed();
        perf.uncompressed();
      }
    }
  }
  EXPECT_GT(compressed, in_all / 3);
  EXPECT_LT(compressed, in_all);
}

}  // namespace
}  // namespace auxtrail::unit
