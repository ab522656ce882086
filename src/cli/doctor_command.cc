// auxtrail doctor: one screen about this machine. Shortfalls are no failure of the command.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "record/checkup.h"

namespace auxtrail::cli {
namespace {

using record::Finding;
using State = record::Finding::State;

const char* word(State state) {
  switch (state) {
    case State::kOk:
      return "ok";
    case State::kNote:
      return "note";
    case State::kShortfall:
      return "short";
  }
  return "?";
}

const char* colour(State state) {
  const char* no_colour = std::getenv("NO_COLOR");
  if (::isatty(STDOUT_FILENO) == 0 || (no_colour != nullptr && *no_colour != '\0')) return "";
  switch (state) {
    case State::kOk:
      return "\x1b[32m";
    case State::kNote:
      return "\x1b[36m";
    case State::kShortfall:
      return "\x1b[33m";
  }
  return "";
}

void print_text(const std::vector<Finding>& findings) {
  size_t shortfalls = 0;
  for (const Finding& finding : findings) {
    const char* start = colour(finding.state);
    fmt::print("{}{:<5}{} {:<27} {}\n", start, word(finding.state), *start != '\0' ? "\x1b[0m" : "",
               finding.topic, finding.text);
    if (!finding.remedy.empty()) fmt::print("{:<33} mend: {}\n", "", finding.remedy);
    if (finding.state == State::kShortfall) ++shortfalls;
  }
  fmt::print("{}\n", shortfalls == 0 ? "Nothing to mend." : fmt::format("{} to mend.", shortfalls));
}

void print_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"topic", finding.topic},
                    {"state", word(finding.state)},
                    {"text", finding.text},
                    {"remedy", finding.remedy}});
  }
  fmt::print("{}\n", nlohmann::ordered_json{{"findings", list}}.dump(2));
}

}  // namespace

int run_doctor(const Arguments& arguments) {
  bool json = false;
  CLI::App app("Shows what this machine offers for recording, and how to mend what is missing.",
               "auxtrail doctor");
  app.add_flag("--json", json, "Print JSON");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "auxtrail doctor: {}\n", error.what());
    return 2;
  }
  const std::vector<Finding> findings = record::examine_machine();
  if (json) {
    print_json(findings);
  } else {
    print_text(findings);
  }
  return 0;
}

}  // namespace auxtrail::cli
