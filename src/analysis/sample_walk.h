// SampleWalk: one pass over the samples of a recording, in order of time, each with the execution
// history that its AUX bytes hold; and between them, if the file holds full trace or snapshots, the
// flow of all threads.
//
//   SampleWalk walk(recording, {.blocks = true});
//   walk.run([&](const WalkedSample& sample) { ...; return true; });
//
// Memory is bounded: one sample's history is held at a time, and a window of trace per thread,
// whatever the size of the file. Odd
// data does not stop the walk; it is counted here, in the reader's statistics and in the DSO table.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analysis/full_trace.h"
#include "analysis/recording.h"
#include "analysis/trace_filters.h"
#include "decode/branch_decoder.h"
#include "history/branch_history.h"
#include "history/virtual_lbr.h"
#include "image/code_map.h"

namespace auxtrail::analysis {

// How much of a sample's history, from its beginning on, the thread's sample before it showed
// already: with continuous trace, successive samples overlap if little was executed between them.
struct SeenBefore {
  size_t branches = 0;
  size_t blocks = 0;
};

// Views that end with the visit.
//
// A sample lies where its event overflowed, at the end of its history, but for the software unit's
// windows. These run on from there: the history begins at the overflow, and the sample lies where
// the AUX bytes were full, which is at a branch, and the more likely in a piece of code the more
// packets it makes. So it is overflow_ip that tells where the time goes.
struct WalkedSample {
  const perfdata::DataRecord& record;
  const perfdata::Event& event;
  const abi::Sample& sample;
  uint64_t period;            // how many events the sample stands for; 1 if the file does not tell
  uint64_t time_ns;           // for lookups: the end of time if the file has no times
  const image::Layout& code;  // the process's mappings: where the history's addresses lie
  const image::Layout& ip_code;  // where the sample's own ip lies (the kernel's for kernel samples)
  uint64_t overflow_ip;          // where the program was when the event overflowed: see below
  const history::BranchHistory& history;  // empty without AUX bytes
  const decode::DecodeSummary& decoded;   // all zero without AUX bytes
  SeenBefore seen{};                      // if asked for
  bool untraced = false;  // it lies where the file's address filters keep the trace off

  [[nodiscard]] bool has_history() const { return !sample.aux.empty(); }
  // The decoded history leads up to the sample: its last address is the sample's ip.
  [[nodiscard]] bool ends_at_ip() const { return decoded.final_ip == sample.ip; }
  // Or it ends before, where the program left what is traced.
  [[nodiscard]] bool ends_before_filtered_ip() const {
    return untraced && !ends_at_ip() && !decoded.ends_open;
  }
};

// Returns false to stop the walk.
using SampleVisitor = std::function<bool(const WalkedSample&)>;
// Told now and then how much of the data has been walked, 0 to 1.
using ProgressCallback = std::function<void(double done)>;

struct WalkOptions {
  bool decode = true;   // false: no histories, all samples at the speed of reading
  bool blocks = false;  // histories hold their blocks too
  // So many branches of each history, the newest; 0: all. What lies before them is not even decoded
  // where that can be, so that the statistics know nothing of it. Not together with blocks.
  size_t newest_branches = 0;
  bool times = false;      // histories hold their branches' times too
  bool overlaps = false;   // find out what of a history was seen before
  bool full_trace = true;  // decode AUXTRACE records too
  decode::DecoderKind decoder = decode::DecoderKind::kNative;
  ProgressCallback progress{};
};

struct WalkStatistics {
  uint64_t samples = 0;
  uint64_t unparsable_samples = 0;
  uint64_t samples_with_aux = 0;  // with at least one byte
  uint64_t empty_aux = 0;         // that should have AUX bytes and have none
  decode::DecodeSummary decoded;  // the sum over all samples
  uint64_t overlap_bytes = 0;     // AUX bytes that the sample before held too, if asked for
  QueueStatistics queues;         // AUXTRACE records: full trace or snapshots
  size_t traced_queues = 0;       // threads, or CPUs
  decode::DecodeSummary traced;   // the sum over all of them
};

class SampleWalk {
 public:
  explicit SampleWalk(Recording& recording, WalkOptions options = {});
  ~SampleWalk();

  // May be called again: everything is counted afresh. Full trace is decoded with or without a
  // visitor for it, unless decoding is off.
  void run(const SampleVisitor& visitor);
  void run(const SampleVisitor& visitor, TraceVisitor& trace_visitor);

  [[nodiscard]] const WalkStatistics& statistics() const { return statistics_; }
  // One line per kind of loss or oddity: the file's, the decoder's and the missing files.
  [[nodiscard]] std::vector<std::string> messages() const;

 private:
  bool visit_sample(const perfdata::DataRecord& record, const SampleVisitor& visitor);
  void decode(const abi::Sample& sample, const image::Layout& code);
  [[nodiscard]] const history::BranchHistory& history() const {
    return lbr_ ? lbr_->history() : history_;
  }
  void find_seen(const perfdata::DataRecord& record, const abi::Sample& sample,
                 const image::Layout& code);
  [[nodiscard]] uint64_t overflow_ip(const abi::Sample& sample) const;
  const image::CodeMap& code_map(const image::Layout& layout);
  void show_progress(const perfdata::DataRecord& record);

  Recording& recording_;
  WalkOptions options_;
  std::unique_ptr<decode::BranchDecoder> decoder_;
  std::unordered_map<uint64_t, image::CodeMap> code_maps_;  // by layout id
  history::BranchHistory history_;
  std::optional<history::VirtualLbr>
      lbr_;  // in place of it, if only the newest branches are asked for
  TraceFilters filters_;
  std::unordered_map<uint32_t, std::span<const std::byte>> previous_aux_;  // by tid
  SeenBefore seen_;
  decode::DecodeSummary decoded_;
  WalkStatistics statistics_;
};

}  // namespace auxtrail::analysis
