#include "record/collector.h"

#include <algorithm>
#include <ctime>

#include "abi/sample_layout.h"
#include "abi/side_band.h"
#include "abi/side_band_build.h"
#include "record/clock.h"

namespace auxtrail::record {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kLatestNewsNs = 5 * kSecondNs;  // samples and connections come at most so late

perfdata::ClockData clock_data() {
  timespec wall{};
  perfdata::ClockData data;
  data.clockid = CLOCK_MONOTONIC;
  data.clock_ns = monotonic_ns();
  ::clock_gettime(CLOCK_REALTIME, &wall);
  data.wall_clock_ns =
      static_cast<uint64_t>(wall.tv_sec) * kSecondNs + static_cast<uint64_t>(wall.tv_nsec);
  return data;
}

}  // namespace

Collector::Collector(SessionPlan plan, perfdata::Writer writer,
                     std::optional<KernelSideBand> side_band, pid_t root)
    : plan_(std::move(plan)),
      writer_(std::move(writer)),
      kernel_side_band_(std::move(side_band)),
      synthetic_side_band_(abi::SampleFormat::from_attr(plan_.config.leader),
                           plan_.config.leader_id),
      take_side_band_([this](std::span<const std::byte> record) { take_side_band(record); }),
      side_band_format_(abi::SampleFormat::from_attr(plan_.config.leader)),
      check_(plan_.config, monotonic_ns()),
      root_(root),
      carried_counts_(plan_.config),
      previous_round_ns_(monotonic_ns()) {
  census_.add_root(root);
}

void Collector::add(Connection connection) {
  if (failure_) return;
  census_.note_connection(connection.pid, connection.time_ns, connection.hello.declined);
  // The process has executed another program: its older memory has no threads any more.
  const auto older =
      std::find_if(processes_.begin(), processes_.end(),
                   [&](const TracedProcess& process) { return process.pid() == connection.pid; });
  if (older != processes_.end()) {
    older->drain(context());
    if (older->pid() == root_) carried_counts_.executed(older->first_thread_counts());
    retire(*older);
    processes_.erase(older);
  }
  if (connection.hello.declined != channel::Declined::kNo) {
    ++summary_.declined[connection.hello.declined];
    return;
  }
  ++summary_.processes;
  note_hello(connection.hello);
  if (!kernel_side_band_ && connection.process) {
    synthetic_side_band_.add_process(*connection.process, connection.time_ns, take_side_band_);
  }
  processes_.emplace_back(std::move(connection), plan_.config);
}

// How the process is sampled, and what of that could not be had.
void Collector::note_hello(const channel::Hello& hello) {
  if (hello.trigger == channel::Trigger::kKernelEvent) {
    ++summary_.kernel_triggers;
  } else {
    ++summary_.trigger_refusals[hello.trigger_errno];
    summary_.timer_hz = hello.timer_hz;
  }
  for (uint32_t i = 0; i < plan_.config.sampler_count; ++i) {
    if ((hello.failed_samplers >> i & 1) == 0) continue;
    ++summary_.unopened_events[{plan_.names[i], hello.failed_errno}];
  }
  if (hello.entry_errno != 0) ++summary_.entry_refusals[hello.entry_errno];
  if (hello.timer_errno != 0) ++summary_.timer_refusals[hello.timer_errno];
}

void Collector::round() {
  if (failure_) return;
  const uint64_t now_ns = monotonic_ns();
  drain_side_band();
  drain_processes();
  const uint64_t all_told_ns = now_ns - std::min(now_ns, kLatestNewsNs);
  census_.settle(all_told_ns);
  census_.forget_exited(all_told_ns);
  // What was written to the rings before the previous round began has been drained by now, whatever
  // ring it was in.
  write_until(previous_round_ns_);
  previous_round_ns_ = now_ns;
  if (now_ns >= next_flush_ns_) {
    check(writer_.flush());
    next_flush_ns_ = now_ns + kSecondNs;
  }
}

void Collector::finish(const std::vector<std::string>& recorder_command_line) {
  round();
  for (TracedProcess& process : processes_) {
    if (!process.ended()) ++summary_.still_running;
    if (takes_last_snapshot()) process.snapshot(context(), plan_.events.snapshot.bytes);
    retire(process);
  }
  stop_sampling();
  tell_lost_samples();
  write_until(UINT64_MAX);
  check(writer_.write_features_and_close(features(recorder_command_line)));
  summary_.file = writer_.name();
  summary_.file_bytes = writer_.file_bytes();
  summary_.file_complete = !failure_;
  summary_.event_name = plan_.event_name;
  summary_.counted_name = plan_.counted_name;
  summary_.continuous = plan_.config.continuous != 0;
  for (const AddressFilter& filter : plan_.events.leader.filters) {
    auto& files = summary_.unmapped_filters;
    const bool told = std::find(files.begin(), files.end(), filter.file) != files.end();
    if (!told && !code_files_.has(filter.file)) files.push_back(filter.file);
  }
  if (kernel_side_band_) summary_.coverage = census_.coverage(plan_.config.inherit_children == 0);
}

bool Collector::knows(pid_t pid) const {
  if (census_.thread_state(pid, pid) != Census::ThreadState::kUnknown) return true;
  return std::any_of(processes_.begin(), processes_.end(),
                     [pid](const TracedProcess& process) { return process.pid() == pid; });
}

void Collector::drain_side_band() {
  fill_ = 0;
  if (!kernel_side_band_) return;
  kernel_side_band_->drain(take_side_band_);
  fill_ = kernel_side_band_->fill();
}

void Collector::drain_processes() {
  // Asking /proc about each thread costs; the kernel's side-band tells of almost every end.
  const bool look_at_proc = !kernel_side_band_ || monotonic_ns() >= next_flush_ns_;
  const TracedProcess::Context drain_context = context();
  for (auto process = processes_.begin(); process != processes_.end();) {
    const bool ended = process->ended();  // asked first: nothing comes after the drain then
    if (!kernel_side_band_) update_synthetic(*process);
    process->drain(drain_context);
    fill_ = std::max(fill_, process->fill());
    if (!ended) {
      process->free_slots(census_, look_at_proc);
      ++process;
      continue;
    }
    if (!kernel_side_band_) {
      synthetic_side_band_.end_process(process->pid(), monotonic_ns(), take_side_band_);
    }
    if (takes_last_snapshot()) process->snapshot(drain_context, plan_.events.snapshot.bytes);
    retire(*process);
    process = processes_.erase(process);
  }
}

void Collector::update_synthetic(TracedProcess& process) {
  if (!process.mappings_changed()) return;
  synthetic_side_band_.update_mappings(read_process(process.pid()), previous_round_ns_,
                                       take_side_band_);
}

void Collector::take_side_band(std::span<const std::byte> bytes) {
  abi::Record record;
  abi::SampleId id;
  if (abi::first_record(bytes, record) != abi::RecordStatus::kOk ||
      abi::parse_trailer(record, side_band_format_, id) != abi::ParseStatus::kOk) {
    ++summary_.records.side_band_lost;
    return;
  }
  note_side_band(record);
  queue_.push(id.time_ns, bytes);
}

void Collector::note_side_band(const abi::Record& record) {
  const auto parsed = [&](auto& out) {
    return abi::parse(record, side_band_format_, out) == abi::ParseStatus::kOk;
  };
  abi::MmapRecord mapping;
  abi::TaskRecord task;
  abi::CommRecord comm;
  abi::LostRecord lost;
  switch (record.type) {
    case PERF_RECORD_MMAP2:
      if (!parsed(mapping)) break;
      census_.note_mapping(mapping);
      code_files_.note(mapping);
      break;
    case PERF_RECORD_FORK:
      if (parsed(task)) census_.note_fork(task);
      break;
    case PERF_RECORD_EXIT:
      if (parsed(task)) census_.note_exit(task);
      break;
    case PERF_RECORD_COMM:
      if (parsed(comm)) census_.note_comm(comm);
      break;
    case PERF_RECORD_LOST:
      if (parsed(lost)) add_saturating(summary_.records.side_band_lost, lost.lost);
      break;
    default:
      break;
  }
}

void Collector::retire(TracedProcess& process) {
  summary_.records.add(process.record_totals());
  summary_.records.orphan_slots += process.untied_slots();
  summary_.units.add(process.unit_totals());
}

// The bytes go to the file at once, the record that tells of them in its turn.
void Collector::take_aux(const AuxPiece& piece) {
  if (failure_) return;
  perfdata::AuxtraceRecord trace;
  trace.size_bytes = piece.first.size() + piece.second.size();
  trace.offset = piece.offset;
  trace.reference = monotonic_ns();
  trace.index = aux_index(piece);
  trace.tid = static_cast<uint32_t>(piece.owner.tid);
  trace.cpu = ~uint32_t{0};
  abi::AuxRecord told;
  told.aux_offset = piece.offset;
  told.aux_size_bytes = trace.size_bytes;
  told.flags = piece.flags;
  told.id.pid = static_cast<uint32_t>(piece.owner.pid);
  told.id.tid = trace.tid;
  told.id.time_ns = trace.reference;
  told.id.id = plan_.config.leader_id;
  ByteWriter record;
  abi::append_aux(record, side_band_format_, told);
  queue_.push(trace.reference, record.bytes());
  add_saturating(summary_.records.aux_bytes, trace.size_bytes);
  check(writer_.append_auxtrace(trace, piece.first, piece.second));
}

// perf numbers AUX areas; here each thread has one of its own.
uint32_t Collector::aux_index(const AuxPiece& piece) {
  const auto key = std::make_tuple(piece.owner.pid, piece.owner.tid, piece.buffer);
  return aux_indices_.try_emplace(key, static_cast<uint32_t>(aux_indices_.size())).first->second;
}

// What a process did last can be had until its memory is let go.
bool Collector::takes_last_snapshot() const {
  return plan_.config.mode == channel::TraceMode::kSnapshot && plan_.events.snapshot.on_exit;
}

void Collector::snapshot() {
  if (failure_) return;
  const TracedProcess::Context drain_context = context();
  for (TracedProcess& process : processes_) {
    process.snapshot(drain_context, plan_.events.snapshot.bytes);
  }
  ++summary_.snapshots;
}

void Collector::write_until(uint64_t cutoff_ns) {
  if (failure_) return;
  const size_t count = queue_.take_until(
      cutoff_ns, [this](std::span<const std::byte> record) { check(writer_.append(record)); });
  if (count != 0) check(writer_.finished_round());
}

// For whoever reads the file without having seen the summary. The counts come from memory that the
// program can write to; one that damaged its rings may have damaged them too.
void Collector::tell_lost_samples() {
  abi::LostRecord lost;
  lost.lost = overflows_without_sample(summary_.units);
  if (lost.lost == 0 || summary_.records.bad_rings + summary_.records.bad_records != 0) return;
  lost.id.time_ns = monotonic_ns();
  lost.id.id = plan_.config.samplers[0].id;
  ByteWriter record;
  abi::append_lost_samples(record, side_band_format_, lost);
  queue_.push(lost.id.time_ns, record.bytes());
}

void Collector::check(Status status) {
  if (status || failure_) return;
  failure_ = std::move(status).error();
  stop_sampling();
}

void Collector::stop_sampling() {
  for (TracedProcess& process : processes_) process.stop_triggers();
}

TracedProcess::Context Collector::context() {
  TracedProcess::Context result{check_,
                                census_,
                                kernel_side_band_.has_value(),
                                *scratch_,
                                [this](uint64_t time_ns, std::span<std::byte> record) {
                                  carried_counts_.adjust(record);
                                  queue_.push(time_ns, record);
                                },
                                {},
                                [this](const AuxPiece& piece) { take_aux(piece); }};
  if (!kernel_side_band_) {
    result.new_thread = [this](pid_t pid, pid_t tid) {
      synthetic_side_band_.add_thread(pid, tid, read_thread_name(pid, tid), previous_round_ns_,
                                      take_side_band_);
    };
  }
  return result;
}

perfdata::Features Collector::features(
    const std::vector<std::string>& recorder_command_line) const {
  perfdata::Features features;
  perfdata::describe_this_machine(features);
  features.version = "auxtrail " AUXTRAIL_VERSION;
  features.command_line = recorder_command_line;
  if (!plan_.intel_pt.present) features.pmus.push_back({plan_.intel_pt.pmu_type, "intel_pt"});
  features.build_ids = code_files_.build_ids();
  features.clock_resolution_ns = 1;
  features.clock_data = clock_data();
  return features;
}

}  // namespace auxtrail::record
