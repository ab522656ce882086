// See campaign.h.
#include "campaign.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "channel/reasons.h"
#include "comparison.h"
#include "continuous_run.h"
#include "follow.h"
#include "history.h"
#include "pair.h"
#include "state.h"
#include "window.h"

namespace auxtrail::lockstep {
namespace {

constexpr uint64_t kMaxRuns = 100;
constexpr uint64_t kMaxNativeSteps = 40;
constexpr uint64_t kHuntEvery = 5;  // every so many windows a kind that lacks windows is looked for
constexpr uint64_t kMaxHuntSteps = 1000;
constexpr uint64_t kMutateWindow = 12;  // the first window that a self-test may falsify
constexpr uint64_t kPatience = 200;     // windows without a single step

// A program may execute a kind in one short phase only, which chance may have passed over: then it
// runs again and that kind is looked for at every window, over as many steps as all runs together.
bool HuntsOn(const CampaignOptions& options, const CampaignResult& result) {
  return !options.recorder.continuous && options.mutation == Mutation::kNone &&
         !result.coverage.missing().empty() && result.steps < 2 * options.steps;
}

// One program in one pair of processes.
class Run {
 public:
  Run(const CampaignOptions& options, Recorder& recorder, uint64_t seed, CampaignResult& result)
      : options_(options),
        result_(result),
        hunting_(result.steps >= options.steps),
        random_(seed),
        pair_(MakeLaunch(options, recorder), recorder, options.unit),
        comparison_(pair_, options.unit) {}

  void run() {
    before_ = pair_.channel().reasons();
    const uint64_t steps_before = result_.steps;
    if (!check_native(pair_.run_system_calls(options_.skip_calls))) return;
    while (!is_done() && result_.differences.empty()) {
      if (!advance()) break;
      one_window();
      if (windows_ == kPatience && result_.steps == steps_before) {
        differ({fmt::format("none of {} windows went anywhere", windows_)});
      }
    }
    const Reasons now = pair_.channel().reasons();
    for (size_t i = 0; i < now.size(); ++i) result_.reasons[i] += now[i] - before_[i];
    result_.memory_bytes += comparison_.memory_bytes();
  }

 private:
  [[nodiscard]] bool is_done() const {
    return hunting_ ? !HuntsOn(options_, result_) : result_.steps >= options_.steps;
  }

  // False if the program is over, or if the two are not the same any more without a window's doing.
  bool check_native(Native status) {
    if (status == Native::kDiverged) {
      differ({"outside of windows: " + pair_.problem()});
    }
    return status == Native::kOk;
  }

  void differ(std::vector<std::string> messages) {
    auto& all = result_.differences;
    all.insert(all.end(), messages.begin(), messages.end());
  }

  // Some instructions natively, to a place where a window is worth starting.
  bool advance() {
    if (options_.leap_windows != 0 &&
        windows_ % options_.leap_windows == options_.leap_windows - 1 &&
        !check_native(pair_.run_system_calls(options_.leap_calls))) {
      return false;
    }
    const bool hunt =
        (hunting_ || windows_ % kHuntEvery == kHuntEvery - 1) && result_.coverage.wants_any();
    const uint64_t least = 1 + random_() % 6;
    for (uint64_t i = 0; i < (hunt ? kMaxHuntSteps : kMaxNativeSteps); ++i) {
      const bool good =
          hunt ? result_.coverage.is_wanted(next()) : result_.coverage.is_rare(next());
      if (i >= least && good) break;
      if (!check_native(pair_.step())) return false;
      ++result_.native_steps;
    }
    // The unit's own functions are no place for a window, though one may end before them.
    while (!pair_.plain_layout().is_program_code(pair_.plain().ip())) {
      if (!check_native(pair_.step())) return false;
    }
    const auto differences =
        CompareRegisters(pair_.traced().registers(), pair_.plain().registers());
    for (const auto& text : differences) differ({"natively, before a window: " + text});
    return differences.empty();
  }

  const Instruction& next() { return pair_.instructions().at(pair_.plain().ip()); }

  void one_window() {
    const std::string start = Describe(pair_.plain(), pair_.plain().ip());
    result_.coverage.started(next());
    const Window window = RunWindow(pair_);
    ++windows_;
    ++result_.windows;
    result_.opened += window.opened ? 1 : 0;
    if (!window.problem.empty()) {
      differ({window.problem});
    } else {
      check(window);
    }
    if (result_.differences.empty()) return;
    const auto reason = static_cast<size_t>(window.reason);
    differ({fmt::format("in window {} of the run, from {} to {:#x}, ended by: {}", windows_, start,
                        window.end_ip,
                        reason < channel::kReasonCount ? channel::name(window.reason) : "?")});
  }

  void check(const Window& window) {
    History history;
    history.first_ip = history.final_ip = window.start_ip;
    if (window.sample) {
      history = decode(*window.sample);
      if (!history.error.empty()) return differ({"the sample's history: " + history.error});
      const uint64_t ip = window.sample->ip ^ (falsify(Mutation::kSampleIp) ? 1 : 0);
      if (ip != window.end_ip) differ({fmt::format("the sample's ip is {:#x}", ip)});
    } else if (window.opened) {
      return differ({"no sample of a window"});
    }
    const Walk walk = FollowHistory(pair_, history, result_.coverage);
    result_.steps += walk.steps;
    result_.transfers += walk.transfers;
    if (!walk.difference.empty()) return differ({walk.difference});
    if (walk.compressed_returns != 0 && !options_.recorder.return_compression) {
      return differ({"a return is compressed"});
    }
    differ(comparison_.compare(pair_.traced().registers(), true,
                               falsify() ? options_.mutation : Mutation::kNone));
    pair_.share_dead_stack();
  }

  [[nodiscard]] bool falsify() const {
    return options_.mutation != Mutation::kNone && windows_ >= kMutateWindow;
  }
  [[nodiscard]] bool falsify(Mutation mutation) const {
    return falsify() && options_.mutation == mutation;
  }

  History decode(const TakenSample& sample) {
    auto aux = sample.aux;
    if (falsify(Mutation::kOutcome)) (void)FlipOutcome(aux);
    History history = decoder_.decode(pair_.traced_layout().code(), aux);
    if (!history.error.empty() || history.transfers.empty()) return history;
    const size_t middle = history.transfers.size() / 2;
    if (falsify(Mutation::kTransfer)) {
      history.transfers.erase(history.transfers.begin() + static_cast<ptrdiff_t>(middle));
    }
    if (falsify(Mutation::kTarget)) history.transfers[middle].to += 1;
    if (falsify(Mutation::kFinalIp)) {
      history.final_ip = history.transfers.back().from;
      history.transfers.pop_back();
    }
    return history;
  }

  const CampaignOptions& options_;
  CampaignResult& result_;
  const bool hunting_;  // all steps are taken; what is missing is a kind of instruction
  std::mt19937_64 random_;
  Pair pair_;
  Comparison comparison_;
  HistoryDecoder decoder_;
  Reasons before_{};
  uint64_t windows_ = 0;
};

}  // namespace

LaunchOptions MakeLaunch(const CampaignOptions& options, const Recorder& recorder) {
  return {
      .command = options.command,
      .environment = {"PATH=/usr/bin:/bin", "HOME=/", "LC_ALL=C", "PERL_HASH_SEED=0",
                      "PYTHONHASHSEED=0", "AUXTRAIL_WHEN_TRACED=sample",
                      "LD_PRELOAD=" + options.unit, "AUXTRAIL_SOCKET=" + recorder.socket_path()},
      .input = options.input};
}

CampaignResult RunCampaign(const CampaignOptions& options) {
  CampaignResult result;
  while ((result.steps < options.steps || HuntsOn(options, result)) && result.differences.empty()) {
    if (result.runs == kMaxRuns) Die("the program is too short");
    Recorder recorder(options.recorder);
    const uint64_t before = result.windows + result.continuous.rounds;
    const uint64_t seed = options.seed + result.runs;
    if (options.recorder.continuous) {
      ContinuousRun(options, recorder, seed, result).run();
    } else {
      Run(options, recorder, seed, result).run();
    }
    if (result.windows + result.continuous.rounds == before && result.differences.empty()) {
      Die("the program ends before the first window");
    }
    ++result.runs;
  }
  return result;
}

}  // namespace auxtrail::lockstep
