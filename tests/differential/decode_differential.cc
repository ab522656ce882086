// decode_differential: decoders against each other and against the truth, over generated traces.
//
//   decode_differential --cases 1000000 --seed 7 --mutate
//   decode_differential --seed 7 --mutate --case 4711      one case again
//
// Stops at the first difference and shows it: the case's options, both flows and the packets around
// the place. Differences that are known are counted by name, and their reasons told at the end.
// Exit status: 0 no difference, 1 a difference, 2 wrong arguments.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>

#include "decode/libipt_decoder.h"
#include "decode/testing/comparison.h"
#include "decode/testing/flow_comparison.h"
#include "decode/testing/native_comparison.h"
#include "decode/testing/oracle_explanations.h"
#include "decode/testing/real_traces.h"

namespace {

using namespace auxtrail::decode;
using namespace auxtrail::decode::testing;

struct Arguments {
  Differential::Options options;
  std::vector<std::string> comparisons = {"truth", "oracles", "flow"};
  bool times = false;
  bool offsets = false;
};

int run(const Arguments& arguments) {
  const auto begin = std::chrono::steady_clock::now();
  const char* data = std::getenv("AUXTRAIL_TEST_DATA");
  Differential differential(arguments.options,
                            read_real_traces(data != nullptr ? data : AUXTRAIL_TEST_DATA_DEFAULT));
  const auto libipt = [](const TraceConfig& config) { return make_libipt_decoder(config); };
  for (const std::string& name : arguments.comparisons) {
    if (name == "truth") differential.add(compare_truth(libipt));
    if (name == "oracles") differential.add(compare_oracles());
    if (name == "native") differential.add(compare_walks());
    if (name == "pieces") differential.add(compare_pieces());
    if (name == "native-truth") differential.add(compare_native_with_truth());
    if (name == "native-libipt") differential.add(compare_native_with_libipt());
    if (name == "flow") {
      BlockComparison how;
      how.times = arguments.times;
      how.error_offsets = arguments.offsets;
      differential.add(compare_flow(how));
    }
  }
  const auto result = differential.run();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print("{}{} cases, {} bytes, {:.1f} s, {} differences\n", result.report, result.cases,
             result.bytes, took.count(), result.differences);
  for (const auto& [name, count] : result.explained) fmt::print("explained: {}: {}\n", name, count);
  if (!result.explained.empty()) fmt::print("{}{}", explanations(), oracle_explanations());
  return result.differences == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  Differential::Options& options = arguments.options;
  bool goes_on = false;
  std::optional<uint64_t> only;
  CLI::App app{"decoders against each other and against the truth, over generated traces"};
  app.add_option("--cases", options.count, "how many");
  app.add_option("--first", options.first, "number of the first case");
  app.add_option("--case", only, "this case alone");
  app.add_option("--seed", options.cases.seed, "of all random numbers");
  app.add_option("--programs", options.cases.programs, "how many programs the cases share");
  app.add_option("--compare", arguments.comparisons,
                 "what: truth, oracles, flow, native, pieces, native-truth, native-libipt")
      ->delimiter(',')
      ->check(CLI::IsMember(
          {"truth", "oracles", "flow", "native", "pieces", "native-truth", "native-libipt"}));
  app.add_option("--reports", options.max_reports, "differences to show");
  app.add_option("--doubt", options.doubt, "explanations with this in their name are differences");
  app.add_flag("--mutate", options.cases.mutate, "damage the traces, and real ones, too");
  app.add_flag("--go-on", goes_on, "do not stop at the first difference");
  app.add_flag("--times", arguments.times, "compare the times of FlowDecoder's runs");
  app.add_flag("--offsets", arguments.offsets, "and the offsets of its errors");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  options.stop_at_difference = !goes_on;
  if (only) {
    options.first = *only;
    options.count = 1;
  }
  return run(arguments);
}
