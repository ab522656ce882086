// See continuous_run.h.
#include "continuous_run.h"

#include <fmt/format.h>

#include "follow.h"

namespace auxtrail::lockstep {
namespace {

constexpr uint64_t kPatience = 200;      // tries to enter
constexpr uint64_t kMutateRound = 12;    // the first round that a self-test may falsify
constexpr uint64_t kMaxNativeSteps = 4;  // between leaving and entering

}  // namespace

ContinuousRun::ContinuousRun(const CampaignOptions& options, Recorder& recorder, uint64_t seed,
                             CampaignResult& result)
    : options_(options),
      result_(result),
      random_(seed),
      pair_(MakeLaunch(options, recorder), recorder, options.unit),
      comparison_(pair_, options.unit),
      thread_(pair_),
      stream_(pair_.channel()) {}

void ContinuousRun::run() {
  const Reasons before = pair_.channel().reasons();
  if (check_native(pair_.run_system_calls(options_.skip_calls))) {
    while (more() && enter()) {
      while (more() && round()) {
      }
    }
  }
  const Reasons now = pair_.channel().reasons();
  for (size_t i = 0; i < now.size(); ++i) result_.reasons[i] += now[i] - before[i];
  result_.memory_bytes += comparison_.memory_bytes();
}

bool ContinuousRun::more() const {
  return !is_over_ && result_.steps < options_.steps && result_.differences.empty();
}

void ContinuousRun::differ(const std::string& what) {
  result_.differences.push_back(fmt::format("round {}: {}", rounds_, what));
}

// False if the program is over, or if the two are not the same any more.
bool ContinuousRun::check_native(Native status) {
  if (status == Native::kDiverged) differ(pair_.problem());
  is_over_ = status == Native::kExited;
  return status == Native::kOk;
}

// Some instructions natively, then into the cache.
bool ContinuousRun::enter() {
  for (uint64_t i = 0; i < kPatience; ++i) {
    for (uint64_t left = random_() % kMaxNativeSteps + (refused_ ? 1 : 0); left != 0; --left) {
      if (!check_native(pair_.step())) return false;
      ++result_.native_steps;
    }
    while (!pair_.plain_layout().is_program_code(pair_.plain().ip())) {
      if (!check_native(pair_.step())) return false;
    }
    const auto different = CompareRegisters(pair_.traced().registers(), pair_.plain().registers());
    for (const auto& text : different) differ("before entering: " + text);
    if (!different.empty()) return false;
    refused_ = thread_.enter() != Place::kCache;
    take_in(false);
    check_overflows(0);
    if (!more()) return false;
    if (!refused_) {
      ++result_.continuous.entries;
      return true;
    }
  }
  differ(fmt::format("the unit refuses to enter, {} times in a row", kPatience));
  return false;
}

// A piece of the way in the cache, mostly with a signal at its end. False: natively now, or done.
bool ContinuousRun::round() {
  ++rounds_;
  ++result_.continuous.rounds;
  if (options_.leap_windows != 0 && rounds_ % options_.leap_windows == 0) return leap();
  Place place = advance();
  if (place != Place::kCache) return arrive(place);
  if (!arrive(place)) return false;
  const uint64_t choice = random_() % 8;
  if (choice >= 5) {
    thread_.send(options_.signal != 0 && random_() % 2 == 0 ? options_.signal : kLeaveSignal);
  }
  if (choice == 4 || choice == 7) return true;
  ++triggers_;
  place = thread_.overflow();
  if (place != Place::kCache) return arrive(place);
  const uint64_t before = samples_;
  take_in(!pair_.traced_layout().is_unit_code(pair_.traced().ip()));
  if (!more() || samples_ != before || random_() % 4 == 0) return more();
  // The unit's own code was interrupted, which takes the sample now or when it is at work again.
  bool is_there = true;
  while (more() && is_there && samples_ == before) {
    place = thread_.finish_unit_work(&is_there);
    if (place != Place::kCache) return arrive(place);
    take_in(is_there);
  }
  return more();
}

// What the traced one has written. `is_there`: a sample was taken just now, and the registers are
// the program's there.
void ContinuousRun::take_in(bool is_there) {
  if (!stream_.collect()) differ("the AUX area went round");
  check_samples(is_there);
}

// Few steps lead to the gate's and the unit's own instructions, many into translated code.
Place ContinuousRun::advance() {
  Place place = Place::kCache;
  const uint64_t choice = random_() % 12;
  if (choice == 0) place = thread_.run_to_own_call();
  if (choice == 1 || choice == 2) place = thread_.run(1);
  if (choice >= 2 && choice != 3 && place == Place::kCache) place = thread_.run_to_seen(random_);
  return place == Place::kCache ? thread_.step(random_() % (choice % 3 == 2 ? 160 : 24)) : place;
}

// Over some system calls, in the cache too, but compared at these only.
bool ContinuousRun::leap() {
  for (uint64_t i = 0; i < options_.leap_calls; ++i) {
    Place place = Place::kCache;
    while (place == Place::kCache && more()) {
      place = thread_.run(1);
      take_in(false);
    }
    if (place != Place::kCall) return arrive(place);
    const image::CodeMap& code = pair_.traced_layout().code();
    const auto stretches = stream_.decode(code, stream_.end());
    const uint64_t to = stretches.empty() ? pair_.plain().ip() : stretches.back().final_ip;
    if (!stream_.problem().empty() || to != thread_.call_address()) {
      differ("the packets do not lead to a system call: " + stream_.problem());
      return false;
    }
    stream_.mark(code, stream_.end());
    ++result_.continuous.leaps;
    if (!call()) return false;
  }
  return more();
}

bool ContinuousRun::arrive(Place place) {
  take_in(false);
  if (!more()) return false;
  switch (place) {
    case Place::kCache:
      return true;
    case Place::kCall:
      follow(stream_.end());
      return more() && call();
    case Place::kNative:
      left();
      return false;
    case Place::kSignal:
      handle_signal();
      return false;
    case Place::kExited:
      break;
  }
  differ("the program ended without a system call");
  return false;
}

// Both are about to make the same call, the traced one in the gate.
bool ContinuousRun::call() {
  const uint64_t number = thread_.call_number();
  if (!check_native(pair_.meet_call(number))) return false;
  Registers traced = thread_.registers_at_call();
  const Registers plain = pair_.plain().registers();
  traced.rcx = plain.rcx;
  traced.r11 = plain.r11;
  traced.eflags = plain.eflags;
  if (falsify(Mutation::kCallArgument)) traced.rdi ^= 1;
  compare(traced, true, "at a system call");
  ++result_.continuous.calls;
  if (!more() || !check_native(pair_.make_call(number))) return false;
  pair_.share_dead_stack();
  return true;
}

// The traced one runs natively, to where its packets lead.
void ContinuousRun::left() {
  follow(stream_.end());
  if (!more()) return;
  compare(pair_.traced().registers(), true, "natively, out of the cache");
  pair_.share_dead_stack();
  ++result_.continuous.leaves;
  check_overflows(1);
}

// Each overflow has its sample by now or was told to be one too many, but for `open` of them: one
// that came while the thread was leaving is sampled where it enters.
void ContinuousRun::check_overflows(uint64_t open) {
  const uint64_t busy = pair_.channel().reasons()[static_cast<size_t>(channel::Reason::kBusyUnit)];
  if (triggers_ - samples_ - busy <= open) return;
  differ(fmt::format("{} overflows, but {} samples ({} while one was due)", triggers_, samples_,
                     busy));
}

void ContinuousRun::check_samples(bool is_there) {
  const auto samples = pair_.channel().samples();
  for (const TakenSample& sample : samples) {
    if (!result_.differences.empty()) return;
    check_sample(sample);
    if (!is_there || &sample != &samples.back() || !result_.differences.empty()) continue;
    compare(thread_.registers_at(sample.ip), false, "at a sample");
    ++result_.continuous.sample_states;
  }
}

void ContinuousRun::check_sample(const TakenSample& sample) {
  ++samples_;
  ++result_.continuous.samples;
  const auto end = stream_.find(sample.aux);
  if (!end) return differ("a sample's packets are not those of the AUX area");
  follow(*end);
  if (!result_.differences.empty()) return;
  const uint64_t ip = sample.ip ^ (falsify(Mutation::kSampleIp) ? 1 : 0);
  if (ip != pair_.plain().ip()) {
    return differ(
        fmt::format("a sample's ip is {:#x}, the program at {:#x}", ip, pair_.plain().ip()));
  }
  result_.coverage.started(pair_.instructions().at(ip));
  auto aux = sample.aux;
  if (falsify(Mutation::kSampleAux)) (void)FlipOutcome(aux, 1);
  if (falsify(Mutation::kSampleHistory)) stream_.falsify_known();
  const std::string text = stream_.compare_sample(pair_.traced_layout().code(), aux);
  if (!text.empty()) differ("a sample's history: " + text);
}

// The plain one, step by step, to where the packets lead that end at `end`.
void ContinuousRun::follow(uint64_t end) {
  const image::CodeMap& code = pair_.traced_layout().code();
  std::vector<History> stretches = stream_.decode(code, end);
  if (!stream_.problem().empty()) return differ("the packets: " + stream_.problem());
  falsify_history(stretches);
  for (const History& stretch : stretches) {
    const Walk walk = FollowHistory(pair_, stretch, result_.coverage);
    result_.steps += walk.steps;
    result_.transfers += walk.transfers;
    result_.continuous.compressed_returns += walk.compressed_returns;
    if (!walk.difference.empty()) return differ(walk.difference);
    if (walk.compressed_returns != 0 && !options_.recorder.return_compression) {
      return differ("a return is compressed");
    }
  }
  stream_.mark(code, end);
  if (!stream_.problem().empty()) differ("the packets from a PSB on: " + stream_.problem());
}

void ContinuousRun::compare(const Registers& traced, bool with_mask, const char* where) {
  for (const auto& text : comparison_.compare(traced, with_mask, falsified())) {
    differ(fmt::format("{}: {}", where, text));
  }
}

Mutation ContinuousRun::falsified() const {
  return rounds_ >= kMutateRound ? options_.mutation : Mutation::kNone;
}

void ContinuousRun::falsify_history(std::vector<History>& stretches) const {
  for (History& stretch : stretches) {
    if (falsify(Mutation::kFirstIp)) stretch.first_ip += 1;
    if (stretch.transfers.empty() || stretch.outcomes.empty()) continue;
    const size_t middle = stretch.transfers.size() / 2;
    Outcome& outcome = stretch.outcomes[stretch.outcomes.size() / 2];
    if (falsify(Mutation::kOutcome)) {
      outcome = outcome == Outcome::kTaken ? Outcome::kNotTaken : Outcome::kTaken;
    }
    if (falsify(Mutation::kTransfer)) {
      stretch.transfers.erase(stretch.transfers.begin() + static_cast<ptrdiff_t>(middle));
    } else if (falsify(Mutation::kTarget)) {
      stretch.transfers[middle].to += 1;
    } else if (falsify(Mutation::kFinalIp)) {
      stretch.final_ip = stretch.transfers.back().from;
      stretch.transfers.pop_back();
    }
  }
}

}  // namespace auxtrail::lockstep
