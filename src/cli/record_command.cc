// auxtrail record: options in, run_session, messages and exit status out.

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "cli/commands.h"
#include "cli/filter_symbols.h"
#include "cli/record_arguments.h"
#include "record/command.h"
#include "record/session.h"
#include "record/workload.h"

namespace auxtrail::cli {
namespace {

void complain(const std::string& message) { fmt::print(stderr, "auxtrail record: {}\n", message); }

// Dies of the signal that the command died of, as perf record does, so that our caller sees the
// same; the core dump, if any, is the command's. Returns only if the signal does not kill us.
void die_of(int signal_number) {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  ::signal(signal_number, SIG_DFL);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, signal_number);
  ::pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
  ::raise(signal_number);
}

// By default (signal(7)).
bool dumps_core(int signal_number) {
  constexpr int kSignals[] = {SIGABRT, SIGBUS, SIGFPE,  SIGILL,  SIGQUIT,
                              SIGSEGV, SIGSYS, SIGTRAP, SIGXCPU, SIGXFSZ};
  return std::find(std::begin(kSignals), std::end(kSignals), signal_number) != std::end(kSignals);
}

// Where samples are windows, what led to a program's death is not in them.
void tell_of_crash(const record::Outcome& outcome) {
  if (!outcome.started || !WIFSIGNALED(outcome.wait_status) || outcome.summary->continuous) return;
  if (!dumps_core(WTERMSIG(outcome.wait_status))) return;
  fmt::print(
      stderr,
      "[ auxtrail record: The command died of signal {} ({}): --unit=continuous records what "
      "led up to it ]\n",
      WTERMSIG(outcome.wait_status), ::strsignal(WTERMSIG(outcome.wait_status)));
}

int exit_status(const record::Outcome& outcome) {
  if (outcome.bad_options) return 2;
  if (!outcome.started) {
    return outcome.start_errno != 0 ? record::exit_status_of_start_failure(outcome.start_errno) : 1;
  }
  const int status = record::shell_status(outcome.wait_status);
  return status == 0 && outcome.failure ? 1 : status;
}

}  // namespace

int run_record(const Arguments& arguments) {
  auto parsed = parse_record_arguments(arguments);
  if (!parsed) {
    complain(parsed.error().message());
    return 2;
  }
  if (parsed->help) {
    fmt::print("{}", *parsed->help);
    return 0;
  }
  parsed->options.find_symbol = find_filter_symbol;
  const bool quiet = parsed->options.quiet;
  const record::Outcome outcome =
      record::run_session(parsed->options, [quiet](const std::string& text) {
        if (!quiet) complain("warning: " + text);
      });
  if (outcome.failure) complain(outcome.failure->message());
  if (outcome.summary && !quiet) {
    for (const std::string& line : record::summary_lines(*outcome.summary)) {
      fmt::print(stderr, "{}\n", line);
    }
    tell_of_crash(outcome);
  }
  std::fflush(nullptr);
  if (outcome.started && WIFSIGNALED(outcome.wait_status)) die_of(WTERMSIG(outcome.wait_status));
  return exit_status(outcome);
}

}  // namespace auxtrail::cli
