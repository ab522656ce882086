#include "record/session.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "record/channel_server.h"
#include "record/clock.h"
#include "record/collector.h"
#include "record/command.h"
#include "record/kernel_side_band.h"
#include "record/machine.h"
#include "record/output_file.h"
#include "record/recorder_signals.h"
#include "record/session_config.h"
#include "record/unit_library.h"
#include "record/workload.h"

namespace auxtrail::record {
namespace {

using Warn = std::function<void(const std::string&)>;

constexpr size_t kSideBandRingBytes = size_t{512}
                                      << 10;  // per CPU; the usual mlock limit is 516 KiB

// How long to sleep between rounds: short while rings fill fast, long while little comes.
class Pace {
 public:
  void adapt(double fill) {
    if (fill > 0.4) interval_ms_ = std::max(interval_ms_ / 2, kShortestMs);
    if (fill < 0.1) interval_ms_ = std::min(interval_ms_ * 2, kLongestMs);
  }
  [[nodiscard]] int interval_ms() const { return interval_ms_; }

 private:
  static constexpr int kShortestMs = 1;
  static constexpr int kLongestMs = 20;
  int interval_ms_ = kLongestMs;
};

// Three descriptors are held per traced process.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string describe_trace_unit(const IntelPt& intel_pt, TraceChoice choice) {
  if (choice == TraceChoice::kSoftware) return "software (as asked)";
  if (intel_pt.present) return "software (Intel PT is there, but not used by this version)";
  return "software (no Intel PT: the kernel has no intel_pt PMU)";
}

// Everything that must be in place before the command may run.
struct Prepared {
  SessionPlan plan;
  std::unique_ptr<ChannelServer> server;
  RecorderSignals signals;
  Workload workload;
  perfdata::Writer writer;
};

Result<Prepared> prepare(const RecordOptions& options, SessionPlan plan, const Command& command,
                         const Warn& warn) {
  AUXTRAIL_TRY(check_trigger(plan));
  for (const std::string& text : plan.warnings) warn(text);
  AUXTRAIL_TRY(check_can_be_sampled(command));
  if (seccomp_enabled() && seccomp_filters() == 0) {
    warn(
        "a seccomp filter is on and the kernel does not tell how many: the trace unit leaves the "
        "program alone");
  }
  AUXTRAIL_ASSIGN(const std::string unit, find_unit_library());
  AUXTRAIL_ASSIGN(perfdata::Writer writer, create_output(options.output, plan));
  AUXTRAIL_ASSIGN(auto server, ChannelServer::create());
  AUXTRAIL_ASSIGN(RecorderSignals signals, RecorderSignals::block());
  AUXTRAIL_ASSIGN(Workload workload,
                  Workload::fork(command, options.command, {unit, server->socket_path()},
                                 signals.original_mask()));
  return Prepared{std::move(plan), std::move(server), std::move(signals), std::move(workload),
                  std::move(writer)};
}

std::optional<KernelSideBand> open_side_band(const Prepared& prepared, std::string& note,
                                             const Warn& warn) {
  auto side_band =
      KernelSideBand::open(prepared.workload.pid(), prepared.plan.config, kSideBandRingBytes);
  if (side_band) return std::move(*side_band);
  note = fmt::format("{}: {}", side_band.error().what, side_band.error().why);
  warn(side_band.error().message() + "; mappings are read from /proc instead");
  return std::nullopt;
}

void wait_for_work(const Prepared& prepared, int timeout_ms) {
  pollfd descriptors[] = {{prepared.signals.fd(), POLLIN, 0},
                          {prepared.workload.pidfd(), POLLIN, 0}};
  ::poll(descriptors, std::size(descriptors), timeout_ms);
}

// Until the command ends. Returns its wait status.
int record_until_end(Prepared& prepared, Collector& collector) {
  Pace pace;
  const bool snapshots = prepared.plan.config.mode == channel::TraceMode::kSnapshot;
  while (true) {
    wait_for_work(prepared, pace.interval_ms());
    const bool asked = prepared.signals.forward(
        prepared.workload.pid(), [&](pid_t pid) { return collector.knows(pid); }, snapshots);
    if (asked) collector.snapshot();
    const auto status = prepared.workload.try_wait();
    if (status) return *status;
    for (Connection& connection : prepared.server->take()) collector.add(std::move(connection));
    collector.round();
    pace.adapt(collector.fill());
    if (collector.failure()) prepared.server->stop();
  }
}

}  // namespace

Outcome run_session(const RecordOptions& options, const Warn& warn) {
  Outcome outcome;
  auto plan = plan_session(options, machine_facts());
  if (!plan) {
    outcome.bad_options = true;
    outcome.failure = std::move(plan).error();
    return outcome;
  }
  const auto command = find_command(options.command.front());
  if (!command) {
    outcome.start_errno = command.error().sys_errno;
    outcome.failure = command.error();
    return outcome;
  }
  auto prepared = prepare(options, std::move(*plan), *command, warn);
  if (!prepared) {
    outcome.failure = std::move(prepared).error();
    return outcome;
  }
  // From here on the command has the caller's dispositions, and these are ours alone: it must be
  // waited for, and a file size limit is an error like a full disk.
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGXFSZ, SIG_IGN);
  raise_descriptor_limit();
  std::string side_band_note;
  auto side_band = open_side_band(*prepared, side_band_note, warn);
  ServerOptions server_options{prepared->plan.config, !side_band,
                               options.inherit ? 0 : prepared->workload.pid(),
                               prepared->workload.pid()};
  Collector collector(prepared->plan, std::move(prepared->writer), std::move(side_band),
                      prepared->workload.pid());
  Status started = prepared->server->start(server_options);
  if (started) {
    started = prepared->workload.start();
    if (!started) outcome.start_errno = started.error().sys_errno;
  }
  if (!started) {
    outcome.failure = std::move(started).error();
    return outcome;
  }
  outcome.started = true;
  outcome.wait_status = record_until_end(*prepared, collector);
  prepared->server->stop();
  for (Connection& connection : prepared->server->take()) collector.add(std::move(connection));
  collector.finish(options.recorder_command_line);
  outcome.failure = collector.failure();
  outcome.summary = collector.summary();
  outcome.summary->refused_connections = prepared->server->refused();
  outcome.summary->side_band_note = side_band_note;
  outcome.summary->trace_unit = describe_trace_unit(prepared->plan.intel_pt, options.trace);
  return outcome;
}

}  // namespace auxtrail::record
