// Collector: everything that flows into the file of one session.
//
//   kernel side-band rings ─┐
//   /proc (where denied) ───┼─► RecordQueue (by time) ─► perfdata::Writer
//   rings of the processes ─┘
//
// round() drains all of them once; records leave for the file one round later, sorted. A failure to
// write (disk full) ends the sampling: the triggers are let go, the programs run on natively, and
// the file keeps what it has.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "perfdata/writer.h"
#include "record/carried_counts.h"
#include "record/census.h"
#include "record/channel_server.h"
#include "record/code_files.h"
#include "record/kernel_side_band.h"
#include "record/record_queue.h"
#include "record/sample_check.h"
#include "record/session_config.h"
#include "record/summary.h"
#include "record/synthetic_side_band.h"
#include "record/traced_process.h"

namespace auxtrail::record {

class Collector {
 public:
  // Without `side_band`, connections must carry what /proc tells of their process.
  Collector(SessionPlan plan, perfdata::Writer writer, std::optional<KernelSideBand> side_band,
            pid_t root);

  void add(Connection connection);
  // One pass over all sources. After a failure it does nothing.
  void round();
  // Snapshot mode: the newest AUX bytes of all threads go to the file.
  void snapshot();
  // Drains once more, writes what was held back and closes the file with its feature sections.
  void finish(const std::vector<std::string>& recorder_command_line);

  // How full the fullest ring was at the last round, 0..1.
  [[nodiscard]] double fill() const { return fill_; }
  // Whether the process is of the traced tree, as far as is known.
  [[nodiscard]] bool knows(pid_t pid) const;
  // The first failure to write.
  [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }
  // Valid after finish().
  [[nodiscard]] const Summary& summary() const { return summary_; }

 private:
  void drain_side_band();
  void drain_processes();
  void update_synthetic(TracedProcess& process);
  void take_side_band(std::span<const std::byte> record);
  void note_side_band(const abi::Record& record);
  void note_hello(const channel::Hello& hello);
  void retire(TracedProcess& process);
  void tell_lost_samples();
  void take_aux(const AuxPiece& piece);
  [[nodiscard]] uint32_t aux_index(const AuxPiece& piece);
  [[nodiscard]] bool takes_last_snapshot() const;
  void write_until(uint64_t cutoff_ns);
  void check(Status status);
  void stop_sampling();
  [[nodiscard]] TracedProcess::Context context();
  [[nodiscard]] perfdata::Features features(
      const std::vector<std::string>& recorder_command_line) const;

  SessionPlan plan_;
  perfdata::Writer writer_;
  std::optional<KernelSideBand> kernel_side_band_;
  SyntheticSideBand synthetic_side_band_;
  SyntheticSideBand::Take take_side_band_;
  abi::SampleFormat side_band_format_;
  SampleCheck check_;
  pid_t root_;
  CarriedCounts carried_counts_;
  Census census_;
  CodeFiles code_files_;
  RecordQueue queue_;
  std::list<TracedProcess> processes_;
  std::unique_ptr<event::RecordScratch> scratch_ = std::make_unique<event::RecordScratch>();
  std::map<std::tuple<pid_t, pid_t, uint32_t>, uint32_t> aux_indices_;
  uint64_t previous_round_ns_;
  uint64_t next_flush_ns_ = 0;
  double fill_ = 0;
  std::optional<Error> failure_;
  Summary summary_;
};

}  // namespace auxtrail::record
