// ContinuousRun: one program in one pair of processes, the traced one in continuous trace.
//
// Its packets are one long stream. Wherever tracing is off at a known position (a sample, a system
// call, a way out of the cache) the plain process follows the stream up to there, step by step, and
// the states are compared. Samples must be the stream's newest bytes, and tell its newest branches.
#pragma once

#include <random>

#include "campaign.h"
#include "comparison.h"
#include "continuous_tracee.h"
#include "packet_stream.h"
#include "pair.h"

namespace auxtrail::lockstep {

class ContinuousRun {
 public:
  ContinuousRun(const CampaignOptions& options, Recorder& recorder, uint64_t seed,
                CampaignResult& result);
  // To the program's end, or until enough is compared.
  void run();

 private:
  [[nodiscard]] bool more() const;
  bool check_native(Native status);
  void differ(const std::string& what);

  bool enter();
  bool round();
  Place advance();
  bool leap();
  bool arrive(Place place);
  bool call();
  void left();
  void handle_signal();
  bool run_handler(Tracee& tracee);
  void check_overflows(uint64_t open);
  void take_in(bool is_there);
  void check_samples(bool is_there);
  void check_sample(const TakenSample& sample);
  void follow(uint64_t end);
  void compare(const Registers& traced, bool with_mask, const char* where);

  [[nodiscard]] Mutation falsified() const;
  [[nodiscard]] bool falsify(Mutation mutation) const { return falsified() == mutation; }
  void falsify_history(std::vector<History>& stretches) const;

  const CampaignOptions& options_;
  CampaignResult& result_;
  std::mt19937_64 random_;
  Pair pair_;
  Comparison comparison_;
  ContinuousTracee thread_;
  PacketStream stream_;
  uint64_t rounds_ = 0;
  uint64_t triggers_ = 0;
  uint64_t samples_ = 0;
  bool is_over_ = false;  // the program
  bool refused_ = false;  // the last try to enter
};

}  // namespace auxtrail::lockstep
