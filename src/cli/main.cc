// auxtrail: picks the subcommand. Nothing else happens here.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string_view>

#include "cli/commands.h"

namespace auxtrail::cli {
namespace {

struct Subcommand {
  std::string_view name;
  int (*run)(const Arguments& arguments);
  std::string_view purpose;
};

constexpr Subcommand kSubcommands[] = {
    {"record", run_record, "run a command and record its execution history into perf.data"},
    {"report", run_report, "show which functions ran, at the samples and in the history before"},
    {"script", run_script,
     "print every sample as text (-F +brlist: with the branches that led up to it)"},
    {"dump", run_dump, "print the records of a perf.data file, and the Intel PT packets in them"},
    {"decode", run_decode, "decode a raw Intel PT trace: branches, instructions, events, totals"},
    {"verify", run_verify, "decode every sample and check that its history leads up to it"},
    {"doctor", run_doctor, "show what this machine offers for recording, and how to mend the rest"},
};

void print_help(std::FILE* to) {
  fmt::print(to, "usage: auxtrail COMMAND [OPTIONS]\n\n");
  for (const Subcommand& subcommand : kSubcommands) {
    fmt::print(to, "  {:<10} {}\n", subcommand.name, subcommand.purpose);
  }
  fmt::print(to, "\n'auxtrail COMMAND --help' tells the options of a command.\n");
}

int run(int count, char** values) {
  const std::string_view name = count > 1 ? values[1] : "";
  if (name == "--version") {
    fmt::print("auxtrail {}\n", AUXTRAIL_VERSION);
    return 0;
  }
  if (name == "help" && count > 2) {  // auxtrail help COMMAND
    char option[] = "--help";
    char* words[] = {values[0], values[2], option};
    return run(static_cast<int>(std::size(words)), words);
  }
  if (name == "--help" || name == "-h" || name == "help") {
    print_help(stdout);
    return 0;
  }
  const auto* found =
      std::find_if(std::begin(kSubcommands), std::end(kSubcommands),
                   [name](const Subcommand& subcommand) { return subcommand.name == name; });
  if (found == std::end(kSubcommands)) {
    if (!name.empty()) fmt::print(stderr, "auxtrail: '{}' is no command\n\n", name);
    print_help(stderr);
    return 2;
  }
  return found->run(Arguments(values + 2, values + count));
}

}  // namespace
}  // namespace auxtrail::cli

int main(int count, char** values) { return auxtrail::cli::run(count, values); }
