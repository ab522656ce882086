// What the recorder believes of a record from a ring in the traced program's memory: nothing.
//
// The record is a private copy. It is accepted if it is a whole SAMPLE of one of the session's
// samplers (or a LOST record), dated within the session, from the thread that owns the ring, with
// AUX bytes that a decoder can start from; process and thread are then overwritten with what the
// kernel says they are. Everything else is counted and dropped.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "abi/sample.h"
#include "channel/layout.h"

namespace auxtrail::record {

// Whose ring it is: as we see the thread, and as it sees itself (another pid namespace).
struct RingOwner {
  pid_t pid = 0;
  pid_t tid = 0;
  uint32_t inner_pid = 0;
  uint32_t inner_tid = 0;
};

class SampleCheck {
 public:
  SampleCheck(const channel::SessionConfig& config, uint64_t session_start_ns);

  enum class Verdict : uint8_t { kSample, kLost, kBad };
  struct Accepted {
    Verdict verdict = Verdict::kBad;
    uint64_t time_ns = 0;
    uint64_t aux_bytes = 0;  // of a sample
    uint64_t lost = 0;       // of a LOST record
  };
  // Checks one record and overwrites its pid, tid and misc. `now_ns` is the latest time it may
  // have.
  Accepted check(std::span<std::byte> record, const RingOwner& owner, uint64_t now_ns) const;

 private:
  [[nodiscard]] Accepted check_sample(std::span<std::byte> record, const RingOwner& owner,
                                      uint64_t now_ns) const;
  [[nodiscard]] Accepted check_lost(std::span<std::byte> record, const RingOwner& owner,
                                    uint64_t now_ns) const;
  [[nodiscard]] bool believable(const abi::SampleId& id, const RingOwner& owner,
                                uint64_t now_ns) const;

  struct Sampler {
    abi::SampleFormat format;
    uint64_t id;
    size_t max_aux_bytes;
  };
  [[nodiscard]] const Sampler* sampler_of(uint64_t id) const;

  std::vector<Sampler> samplers_;
  uint64_t session_start_ns_;
};

// Whether the bytes hold a PSB and, after it, a PSBEND: without them a decoder finds no start (and
// Linux perf 6.1 crashes on a PSB that never ends).
bool has_trace_start(std::span<const std::byte> aux);

}  // namespace auxtrail::record
