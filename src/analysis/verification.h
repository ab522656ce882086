// Verification: does every AUX sample of a recording decode, and lead up to its sample's ip?
//
// Fed by a SampleWalk; keeps counts, one map of distinct branch counts, and the first few failures
// with their places. A software trace unit's file must come out ok(); so must a user-space
// recording of hardware whose PMI stops tracing at the sample. Full trace and snapshots must decode
// too; what was lost between their records is counted and no failure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/sample_walk.h"

namespace auxtrail::analysis {

// One sample that failed, for finding it again with `auxtrail dump`.
struct SampleFailure {
  uint64_t record_offset = 0;  // in the file
  uint64_t time_ns = 0;
  uint32_t pid = 0;
  uint32_t tid = 0;
  uint64_t ip = 0;
  uint64_t final_ip = 0;                     // 0: nothing was decoded
  std::optional<decode::DecodeError> error;  // unset: decoded, but it ends elsewhere
};

struct Verification {
  static constexpr size_t kMaxFailures = 32;

  uint64_t samples = 0;
  uint64_t samples_with_aux = 0;
  uint64_t aux_bytes = 0;
  uint64_t samples_with_errors = 0;
  uint64_t ends_elsewhere = 0;           // decoded without an error, but not up to the sample's ip
  uint64_t ends_before_filtered_ip = 0;  // the sample lies where address filters trace nothing
  uint64_t without_branches = 0;
  decode::DecodeSummary decoded;
  std::map<uint64_t, uint64_t> branches_per_sample;  // number of branches -> samples
  std::vector<SampleFailure> failures;               // the first kMaxFailures

  // Full trace and snapshots, set when the walk is over.
  QueueStatistics queues;
  size_t traced_queues = 0;
  decode::DecodeSummary traced;

  void add(const WalkedSample& walked);
  void add_trace(const WalkStatistics& statistics);

  // Bits of AUX data, padding included, per taken branch; 0 without branches.
  [[nodiscard]] double bits_per_branch() const;
  // The number of branches that `share` (0 to 1) of the samples with AUX bytes do not exceed.
  [[nodiscard]] uint64_t branches_quantile(double share) const;
  [[nodiscard]] double mean_branches() const;
  [[nodiscard]] bool ok() const {
    return samples_with_errors == 0 && ends_elsewhere == 0 && traced.error_count() == 0;
  }
  [[nodiscard]] bool nothing() const { return samples_with_aux == 0 && traced_queues == 0; }
};

// What of the file itself is damaged so that samples may be missing; nothing if it is whole. A file
// whose recorder was killed between two records counts as whole.
std::optional<std::string> file_damage(const perfdata::Statistics& statistics);

}  // namespace auxtrail::analysis
