// KernelSideBand: MMAP2, COMM, FORK and EXIT of the traced tree, from the kernel itself.
//
// One dummy event per CPU on the command's process, inherited by all it starts and enabled by its
// exec; each has a ring of its own because the kernel gives inherited events per-CPU rings only.
// The records come with the trailer of the AUX leader's layout; their IDENTIFIER is replaced by the
// leader's id, the one that the file knows.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "channel/layout.h"
#include "event/ring_reader.h"

namespace auxtrail::record {

class KernelSideBand {
 public:
  // Opens the events on the process `pid`, which must not have executed its program yet. Rings are
  // `ring_bytes` (2^n) or, where the locked-memory limit is lower, less. Error: perf_event_open or
  // mmap refused; sys_errno says why.
  static Result<KernelSideBand> open(pid_t pid, const channel::SessionConfig& config,
                                     size_t ring_bytes);

  // Hands every new record to `take`, ordered per CPU only. The bytes live until it returns.
  void drain(const std::function<void(std::span<const std::byte>)>& take);

  // The share of its size that the fullest ring held at the last drain, 0..1.
  [[nodiscard]] double fill() const { return fill_; }

 private:
  struct Ring {
    UniqueFd event;
    Mapping memory;
    event::RingReader reader;
    size_t data_bytes = 0;
  };
  std::vector<Ring> rings_;
  std::unique_ptr<event::RecordScratch> scratch_ = std::make_unique<event::RecordScratch>();
  size_t identifier_from_end_ = 0;
  uint64_t leader_id_ = 0;
  double fill_ = 0;
};

}  // namespace auxtrail::record
