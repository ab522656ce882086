// Walking samples: parse, find the code, decode, hand over.
#include "analysis/sample_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "decode/decoder_config.h"

namespace auxtrail::analysis {
namespace {

constexpr size_t kMaxCodeMaps = 256;
constexpr uint64_t kRecordsPerProgress = 64;
constexpr uint64_t kEndOfTime = std::numeric_limits<uint64_t>::max();

uint64_t period_of(const abi::Sample& sample, const perfdata::Event& event) {
  if (event.format.has(PERF_SAMPLE_PERIOD)) return sample.period;
  return event.attr.freq == 0 && event.attr.sample_period != 0 ? event.attr.sample_period : 1;
}

TraceFilters filters_of(perfdata::Reader& reader) {
  const auto& info = reader.auxtrace_info();
  return info && info->intel_pt ? TraceFilters(info->intel_pt->filter) : TraceFilters();
}

bool in_kernel(const abi::Sample& sample) {
  return (sample.misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_KERNEL;
}

}  // namespace

SampleWalk::SampleWalk(Recording& recording, WalkOptions options)
    : recording_(recording),
      options_(std::move(options)),
      history_({.blocks = options_.blocks, .errors = true, .times = options_.times}),
      filters_(filters_of(recording.reader())) {
  if (options_.decode) decoder_ = decode::make_decoder(options_.decoder, recording.trace_config());
  if (decoder_ && options_.newest_branches != 0) {
    lbr_.emplace(*decoder_, history::VirtualLbr::Options{.count = options_.newest_branches,
                                                         .times = options_.times});
  }
}

SampleWalk::~SampleWalk() = default;

void SampleWalk::run(const SampleVisitor& visitor) {
  TraceVisitor nobody;
  run(visitor, nobody);
}

void SampleWalk::run(const SampleVisitor& visitor, TraceVisitor& trace_visitor) {
  statistics_ = {};
  previous_aux_.clear();
  std::optional<FullTrace> trace;
  if (decoder_ && options_.full_trace) trace.emplace(recording_, *decoder_);
  bool stopped = false;
  recording_.reader().for_each_ordered([&](const perfdata::DataRecord& record) {
    if (record.record.type != PERF_RECORD_SAMPLE) return true;
    if (trace && record.time_ns != 0) trace->advance(record.time_ns, trace_visitor);
    stopped = !trace_visitor.wants_more() || !visit_sample(record, visitor);
    return !stopped;
  });
  if (trace) {
    if (!stopped) trace->finish(trace_visitor);
    statistics_.queues = trace->queues();
    statistics_.traced_queues = trace->queue_count();
    statistics_.traced = trace->decoded();
  }
  if (options_.progress) options_.progress(1.0);
}

bool SampleWalk::visit_sample(const perfdata::DataRecord& record, const SampleVisitor& visitor) {
  abi::Sample sample;
  ++statistics_.samples;
  show_progress(record);
  if (record.event == nullptr || !recording_.reader().parse_sample(record, sample)) {
    ++statistics_.unparsable_samples;
    return true;
  }
  const uint64_t time_ns = sample.id.has(PERF_SAMPLE_TIME) ? sample.id.time_ns : kEndOfTime;
  auto& spaces = recording_.spaces();
  const auto code = spaces.layout(static_cast<int32_t>(sample.id.pid), time_ns);
  const auto ip_code = in_kernel(sample) ? spaces.layout(kKernelPid, time_ns) : code;
  decode(sample, *code);
  seen_ = {};
  if (decoder_ && options_.overlaps) find_seen(record, sample, *code);
  const bool untraced =
      !filters_.empty() && (filters_.exclude(*code, sample.ip) || filters_.stopped(sample.aux));
  return visitor({record, *record.event, sample, period_of(sample, *record.event), time_ns, *code,
                  *ip_code, overflow_ip(sample), history(), decoded_, seen_, untraced});
}

uint64_t SampleWalk::overflow_ip(const abi::Sample& sample) const {
  if (!recording_.in_windows() || history().branches().empty()) return sample.ip;
  const decode::Branch& first = history().branches().front();
  return first.kind == decode::BranchKind::kTraceBegin ? first.to : sample.ip;
}

void SampleWalk::decode(const abi::Sample& sample, const image::Layout& code) {
  history_.clear();
  if (lbr_) lbr_->clear();
  decoded_ = {};
  if (sample.has_aux && sample.aux.empty()) ++statistics_.empty_aux;
  if (sample.aux.empty()) return;
  ++statistics_.samples_with_aux;
  if (!decoder_) return;
  decoded_ = lbr_ ? lbr_->read(code_map(code), sample.aux)
                  : decoder_->decode(code_map(code), sample.aux, history_);
  statistics_.decoded += decoded_;
}

void SampleWalk::find_seen(const perfdata::DataRecord& record, const abi::Sample& sample,
                           const image::Layout& code) {
  if (sample.aux.empty()) return;
  auto& previous = previous_aux_[sample.id.tid];
  const auto overlap = previous.empty() ? std::nullopt : find_overlap(previous, sample.aux);
  // What was unpacked does not live as long as the file's own bytes.
  previous = record.unpacked ? std::span<const std::byte>() : sample.aux;
  if (!overlap) return;
  statistics_.overlap_bytes += overlap->known_bytes;
  history::BranchHistory again({.blocks = true, .errors = false});
  (void)decoder_->decode(code_map(code), sample.aux.first(overlap->known_bytes), again);
  seen_ = {std::min(again.branches().size(), history_.branches().size()),
           std::min(again.blocks().size(), history_.blocks().size())};
}

const image::CodeMap& SampleWalk::code_map(const image::Layout& layout) {
  if (code_maps_.size() >= kMaxCodeMaps && code_maps_.find(layout.id) == code_maps_.end()) {
    code_maps_.clear();
  }
  const auto [place, is_new] = code_maps_.try_emplace(layout.id);
  if (is_new) place->second = image::make_code_map(layout, recording_.dsos());
  return place->second;
}

void SampleWalk::show_progress(const perfdata::DataRecord& record) {
  if (!options_.progress || statistics_.samples % kRecordsPerProgress != 0) return;
  auto& reader = recording_.reader();
  if (reader.data_bytes() == 0 || record.file_offset < reader.data_offset()) return;
  options_.progress(static_cast<double>(record.file_offset - reader.data_offset()) /
                    static_cast<double>(reader.data_bytes()));
}

std::vector<std::string> SampleWalk::messages() const {
  std::vector<std::string> lines = recording_.reader().statistics().messages();
  const auto add = [&lines](uint64_t count, std::string_view text) {
    if (count != 0) lines.push_back(fmt::format("{} {}", count, text));
  };
  for (size_t cause = 0; cause < decode::kErrorCauseCount; ++cause) {
    add(statistics_.decoded.errors[cause] + statistics_.traced.errors[cause],
        fmt::format("decode errors: {}", decode::name(static_cast<decode::ErrorCause>(cause))));
  }
  add(statistics_.decoded.overflows + statistics_.traced.overflows,
      "overflows: the trace unit lost packets");
  add(statistics_.empty_aux, "samples came without the AUX bytes they should have");
  add(statistics_.queues.lost_bytes, "bytes of trace lost between two AUXTRACE records");
  const auto& problems = recording_.dsos().problems();
  lines.insert(lines.end(), problems.begin(), problems.end());
  return lines;
}

}  // namespace auxtrail::analysis
