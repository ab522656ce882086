// See follow.h.
#include "follow.h"

#include <fmt/format.h>

namespace auxtrail::lockstep {
namespace {

constexpr uint64_t kMaxStraightSteps =
    2000000;  // without an entry of the history: something is wrong

class Follower {
 public:
  Follower(Pair& pair, const History& history, Coverage& coverage)
      : pair_(pair), plain_(pair.plain()), history_(history), coverage_(coverage) {}

  Walk run() {
    uint64_t ip = plain_.ip();
    if (history_.first_ip != 0 && history_.first_ip != ip) {
      differ(
          fmt::format("the history starts at {:#x}, the window at {:#x}", history_.first_ip, ip));
    }
    uint64_t since = 0;
    while (walk_.difference.empty()) {
      if (ip == history_.final_ip && walk_.transfers == history_.transfers.size()) break;
      const uint64_t before = walk_.transfers;
      ip = step(ip);
      since = before == walk_.transfers ? since + 1 : 0;
      if (since > kMaxStraightSteps) differ("no branch of the history is met any more");
    }
    if (walk_.difference.empty() && outcomes_ != history_.outcomes.size()) {
      differ(fmt::format("{} outcomes executed, {} in the packets", outcomes_,
                         history_.outcomes.size()));
    }
    return walk_;
  }

 private:
  void differ(const std::string& what) {
    if (walk_.difference.empty()) walk_.difference = what;
  }

  // Executes the instruction at `ip`; returns the next one's address.
  uint64_t step(uint64_t ip) {
    const Instruction instruction = pair_.instructions().at(ip);
    if (!instruction.valid || instruction.system_call) {
      differ("the window went over " + Describe(plain_, ip));
      return ip;
    }
    const bool taken = instruction.conditional && IsTaken(instruction, plain_.registers());
    const Stop stop = StepOne(plain_, instruction, ip);
    if (stop.kind != StopKind::kStep) {
      differ(
          fmt::format("signal {} (code {}) at {}", stop.signal, stop.code, Describe(plain_, ip)));
      return ip;
    }
    const uint64_t next = plain_.ip();
    if (instruction.repeats && next == ip) return next;
    ++walk_.steps;
    coverage_.executed(instruction);
    const uint64_t following = ip + instruction.length;
    if (instruction.conditional) {
      conditional(ip, instruction, taken, next);
    } else if (instruction.branch) {
      if (!instruction.direct) indirect(ip, instruction);
      expect({ip, next});
    } else if (next != following) {
      differ(fmt::format("{} led to {:#x}", Describe(plain_, ip), next));
    }
    return next;
  }

  void conditional(uint64_t ip, const Instruction& instruction, bool taken, uint64_t next) {
    const uint64_t following = ip + instruction.length;
    if (next != (taken ? instruction.target : following)) {
      Die("the condition of " + Describe(plain_, ip) + " was misjudged");
    }
    expect_outcome(ip, taken ? Outcome::kTaken : Outcome::kNotTaken);
    // A decoder can't tell a branch to the next instruction from one that is not taken; the
    // outcome above can.
    expect({ip, taken && next != following ? next : 0});
  }

  // Of returns either a TIP packet tells, or with return compression a TNT bit.
  void indirect(uint64_t ip, const Instruction& instruction) {
    const bool compressed = instruction.returns && outcomes_ < history_.outcomes.size() &&
                            history_.outcomes[outcomes_] == Outcome::kTaken;
    walk_.compressed_returns += compressed ? 1 : 0;
    expect_outcome(ip, compressed ? Outcome::kTaken : Outcome::kTarget);
  }

  void expect_outcome(uint64_t ip, Outcome outcome) {
    const size_t index = outcomes_++;
    if (index < history_.outcomes.size() && history_.outcomes[index] == outcome) return;
    constexpr const char* kNames[] = {"not taken", "taken", "a target"};
    differ(fmt::format("{}: {}, outcome {} of {} in the packets says otherwise",
                       Describe(plain_, ip), kNames[static_cast<size_t>(outcome)], index,
                       history_.outcomes.size()));
  }

  void expect(const Transfer& transfer) {
    if (walk_.transfers == history_.transfers.size()) {
      differ(fmt::format("{} -> {:#x} is not in the history, which ends at {:#x}",
                         Describe(plain_, transfer.from), transfer.to, history_.final_ip));
      return;
    }
    const Transfer& claimed = history_.transfers[walk_.transfers];
    if (claimed != transfer) {
      differ(fmt::format("entry {} of {}: executed {} -> {:#x}, the history says {:#x} -> {:#x}",
                         walk_.transfers, history_.transfers.size(),
                         Describe(plain_, transfer.from), transfer.to, claimed.from, claimed.to));
      return;
    }
    ++walk_.transfers;
  }

  Pair& pair_;
  Tracee& plain_;
  const History& history_;
  Coverage& coverage_;
  Walk walk_;
  size_t outcomes_ = 0;
};

}  // namespace

Walk FollowHistory(Pair& pair, const History& history, Coverage& coverage) {
  return Follower(pair, history, coverage).run();
}

}  // namespace auxtrail::lockstep
