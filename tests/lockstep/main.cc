// lockstep: the truth test of the software trace unit. One program runs twice, with identical
// state. One process gets windows at all kinds of instructions, or is in continuous trace with
// samples all over; the other executes the same stretches by single steps of the CPU. The branches
// that the packets tell must be those that were executed, and the state behind them the same.
//
// Usage: lockstep --unit LIBRARY [options] -- CMD...
//   --steps N       single steps to compare (times AUXTRAIL_TRUTH_SCALE); default 100000
//   --aux BYTES[,compressed]
//                   aux_sample_size: how long windows get; default 256. With return compression, or
//                   without. May be given several times: the steps are shared out, one process pair
//                   each
//   --skip CALLS    system calls before the first window
//   --leap W,CALLS  after every W windows run natively over CALLS system calls; in continuous trace
//                   every W rounds in the cache, without stepping the other
//   --input FILE    the program's stdin
//   --seed N        where windows start
//   --end-by-trap 1 windows end as they do where a signal frame of the unit's own can't serve
//   --continuous 1  continuous trace instead of windows
//   --deferred 1    and packets are deferred (unit/deferred_log.h), but none are forgotten
//   --signal N      in continuous trace: sends this signal, too, which the program handles
//   --self-test     instead: falsify one thing at a time; each must be noticed
// Exit status: 0 no difference, 1 differences, 2 the harness has a problem, 77 the program is not
// installed.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "campaign.h"
#include "channel/reasons.h"
#include "tracee.h"

namespace auxtrail::lockstep {
namespace {

constexpr int kSkipped = 77;
constexpr uint64_t kSelfTestSteps = 40000;

struct CommandLine {
  CampaignOptions campaign;
  struct Size {
    uint32_t aux_bytes = 256;
    bool return_compression = false;
  };
  std::vector<Size> sizes;
  bool self_test = false;
};

CommandLine Parse(int argc, char** argv) {
  CommandLine line;
  auto& options = line.campaign;
  int at = 1;
  for (; at < argc && std::strcmp(argv[at], "--") != 0; ++at) {
    const std::string name = argv[at];
    if (name == "--self-test") {
      line.self_test = true;
      continue;
    }
    if (++at == argc) Die(name + " needs a value");
    const char* value = argv[at];
    const uint64_t number = std::strtoull(value, nullptr, 0);
    if (name == "--unit") {
      options.unit = std::filesystem::absolute(value).lexically_normal();
    } else if (name == "--steps") {
      options.steps = number;
    } else if (name == "--aux") {
      line.sizes.push_back({static_cast<uint32_t>(number), std::strchr(value, ',') != nullptr});
    } else if (name == "--skip") {
      options.skip_calls = number;
    } else if (name == "--leap") {
      options.leap_windows = number;
      const char* comma = std::strchr(value, ',');
      options.leap_calls = comma != nullptr ? std::strtoull(comma + 1, nullptr, 0) : 1;
    } else if (name == "--input") {
      options.input = value;
    } else if (name == "--end-by-trap") {
      options.recorder.end_by_trap = number != 0;
    } else if (name == "--continuous") {
      options.recorder.continuous = number != 0;
    } else if (name == "--deferred") {
      options.recorder.deferred = number != 0;
    } else if (name == "--signal") {
      options.signal = static_cast<int>(number);
    } else if (name == "--seed") {
      options.seed = number;
    } else {
      Die("unknown option " + name);
    }
  }
  for (++at; at < argc; ++at) options.command.emplace_back(argv[at]);
  if (options.unit.empty() || options.command.empty()) Die("--unit and a command are needed");
  if (line.sizes.empty()) line.sizes.emplace_back();
  const char* scale = std::getenv("AUXTRAIL_TRUTH_SCALE");
  if (scale != nullptr && std::atof(scale) > 0) {
    options.steps = static_cast<uint64_t>(static_cast<double>(options.steps) * std::atof(scale));
  }
  return line;
}

// Both processes and we take turns: one CPU serves best. It also makes the rseq areas of both
// agree.
void StayOnOneCpu() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int current = sched_getcpu();
  if (current < 0 || !CPU_ISSET(current, &allowed)) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(current, &one);
  (void)sched_setaffinity(0, sizeof one, &one);
}

void PrintContinuous(const ContinuousCounts& counts) {
  fmt::print(
      "  continuous: {} rounds, {} samples (state compared at {}), {} system calls ({} leapt to), "
      "entered {} and left {} times, {} signals handled ({} in the gate), {} compressed returns\n",
      counts.rounds, counts.samples, counts.sample_states, counts.calls, counts.leaps,
      counts.entries, counts.leaves, counts.signals, counts.gate_signals,
      counts.compressed_returns);
}

void Print(const CampaignOptions& options, const CampaignResult& result) {
  fmt::print(
      "aux {}: steps {} (natively {}), windows {} ({} opened) in {} runs, branches {}, differences "
      "{}\n",
      options.recorder.aux_sample_bytes, result.steps, result.native_steps, result.windows,
      result.opened, result.runs, result.transfers, result.differences.size());
  if (options.recorder.continuous) PrintContinuous(result.continuous);
  fmt::print("  memory compared: {:.1f} MB\n  ended by:",
             static_cast<double>(result.memory_bytes) / 1e6);
  for (size_t i = 0; i < channel::kReasonCount; ++i) {
    if (result.reasons[i] != 0) fmt::print(" {} {}", channel::kReasonNames[i], result.reasons[i]);
  }
  fmt::print("\n  mnemonics executed {}, windows started at {}; kinds (share:starts): {}\n",
             result.coverage.mnemonics_executed(), result.coverage.mnemonics_started(),
             result.coverage.kinds());
  for (const auto& text : result.differences) fmt::print("  DIFFERENCE {}\n", text);
  std::fflush(stdout);
}

// Continuous trace starts no windows all over a program; but it must have been looked at.
std::string Missing(const ContinuousCounts& counts) {
  constexpr uint64_t kLeast = 3;
  if (counts.samples < kLeast) return fmt::format("{} samples", counts.samples);
  const uint64_t states = counts.sample_states + counts.calls + counts.leaves;
  return states < kLeast ? fmt::format("{} states", states) : std::string();
}

// One campaign for each window length, the steps shared out.
int Compare(const CommandLine& line) {
  bool good = true;
  for (const CommandLine::Size& size : line.sizes) {
    CampaignOptions options = line.campaign;
    options.recorder.aux_sample_bytes = size.aux_bytes;
    options.recorder.return_compression = size.return_compression;
    options.steps = (options.steps + line.sizes.size() - 1) / line.sizes.size();
    const CampaignResult result = RunCampaign(options);
    Print(options, result);
    const std::string missing =
        options.recorder.continuous ? Missing(result.continuous) : result.coverage.missing();
    if (!missing.empty()) fmt::print("  too few: {}\n", missing);
    good = good && result.differences.empty() && missing.empty();
  }
  return good ? 0 : 1;
}

// Every falsification must be noticed, and without one nothing must be.
int SelfTest(const CommandLine& line) {
  bool good = true;
  const bool continuous = line.campaign.recorder.continuous;
  for (size_t i = 0; i < (continuous ? kAllMutations : kWindowMutations); ++i) {
    CampaignOptions options = line.campaign;
    options.mutation = static_cast<Mutation>(i);
    options.recorder.aux_sample_bytes = line.sizes[0].aux_bytes;
    options.steps = kSelfTestSteps;
    const CampaignResult result = RunCampaign(options);
    const bool expected = options.mutation != Mutation::kNone;
    const bool noticed = !result.differences.empty();
    fmt::print(
        "{}: {} after {} {}{}{}\n", Name(options.mutation), noticed ? "noticed" : "no difference",
        continuous ? result.continuous.rounds : result.windows, continuous ? "rounds" : "windows",
        noticed ? ": " : "", noticed ? result.differences[0] : "");
    good = good && noticed == expected;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace auxtrail::lockstep

int main(int argc, char** argv) {
  using namespace auxtrail::lockstep;
  const CommandLine line = Parse(argc, argv);
  if (access(line.campaign.command[0].c_str(), X_OK) != 0) {
    fmt::print("skipped: {} is not installed\n", line.campaign.command[0]);
    return kSkipped;
  }
  StayOnOneCpu();
  return line.self_test ? SelfTest(line) : Compare(line);
}
