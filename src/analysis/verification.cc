// Counting what decodes.
#include "analysis/verification.h"

#include <cmath>

namespace auxtrail::analysis {

void Verification::add(const WalkedSample& walked) {
  ++samples;
  if (!walked.has_history()) return;
  ++samples_with_aux;
  aux_bytes += walked.sample.aux.size();
  decoded += walked.decoded;
  ++branches_per_sample[walked.decoded.branches];
  if (walked.decoded.branches == 0) ++without_branches;

  const bool failed = walked.decoded.error_count() != 0;
  const bool filtered = !failed && walked.ends_before_filtered_ip();
  const bool elsewhere = !failed && !filtered && !walked.ends_at_ip();
  if (filtered) ++ends_before_filtered_ip;
  if (failed) ++samples_with_errors;
  if (elsewhere) ++ends_elsewhere;
  if ((!failed && !elsewhere) || failures.size() >= kMaxFailures) return;
  SampleFailure failure{walked.record.file_offset,
                        walked.record.time_ns,
                        walked.sample.id.pid,
                        walked.sample.id.tid,
                        walked.sample.ip,
                        walked.decoded.final_ip.value_or(0),
                        std::nullopt};
  if (!walked.history.errors().empty()) failure.error = walked.history.errors().front();
  failures.push_back(failure);
}

void Verification::add_trace(const WalkStatistics& statistics) {
  queues = statistics.queues;
  traced_queues = statistics.traced_queues;
  traced = statistics.traced;
}

double Verification::bits_per_branch() const {
  if (decoded.branches == 0) return 0;
  return 8.0 * static_cast<double>(aux_bytes) / static_cast<double>(decoded.branches);
}

double Verification::mean_branches() const {
  if (samples_with_aux == 0) return 0;
  return static_cast<double>(decoded.branches) / static_cast<double>(samples_with_aux);
}

uint64_t Verification::branches_quantile(double share) const {
  const auto wanted =
      static_cast<uint64_t>(std::ceil(share * static_cast<double>(samples_with_aux)));
  uint64_t seen = 0;
  for (const auto& [branches, count] : branches_per_sample) {
    seen += count;
    if (seen >= wanted) return branches;
  }
  return 0;
}

std::optional<std::string> file_damage(const perfdata::Statistics& statistics) {
  if (statistics.bad_size_records != 0) return "a record has an impossible size";
  if (statistics.malformed_records != 0) return "records are malformed";
  if (statistics.undecompressed_records != 0) return "compressed records could not be unpacked";
  if (statistics.data_size_beyond_file) return "the file is shorter than its header says";
  if (statistics.truncated_bytes != 0) return "the last record is cut off";
  return std::nullopt;
}

}  // namespace auxtrail::analysis
