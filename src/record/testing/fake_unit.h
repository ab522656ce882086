// A trace unit for tests: speaks the recorder's protocol without tracing anything.
//
// Plays the client of channel/layout.h from within the calling process and writes samples that hold
// an empty window, or whatever bytes a test wants to confront the recorder with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "channel/layout.h"

namespace auxtrail::record::testing {

struct FakeUnitFaults {
  bool wrong_version = false;
  bool unsealed = false;
  bool short_memory = false;
  bool no_memory = false;
  channel::Declined declined = channel::Declined::kNo;
};

class FakeUnit {
 public:
  // Connects to `socket_path` and shakes hands. False if the recorder did not answer.
  bool connect(const char* socket_path, const FakeUnitFaults& faults = {});

  // Claims a free slot for thread `tid`, as the unit does at a thread's first overflow.
  channel::SlotView claim(uint32_t tid);
  // The same in two steps: the slot is the thread's, then the slot is what it shall be.
  channel::SlotView begin_claim();
  void finish_claim(const channel::SlotView& slot, uint32_t tid) const;

  // Appends raw bytes to the slot's data ring, without looking for room, and publishes them.
  void write(const channel::SlotView& slot, std::span<const std::byte> record) const;

  // A well-formed sample of the session: an empty window at `ip`.
  [[nodiscard]] std::vector<std::byte> sample(uint32_t tid, uint64_t ip, uint64_t time_ns) const;

  [[nodiscard]] const channel::SessionConfig& config() const { return config_; }
  [[nodiscard]] std::byte* memory() const { return memory_.data(); }
  [[nodiscard]] int memory_fd() const { return memory_fd_.get(); }
  // Makes the memory without a recorder, for `config`.
  bool create_memory(const channel::SessionConfig& config, const FakeUnitFaults& faults = {});

 private:
  channel::SessionConfig config_;
  UniqueFd memory_fd_;
  Mapping memory_;
};

// PSB, TSC, MODE, FUP, PSBEND, FUP, TIP.PGD: 48 bytes that decode to nothing.
std::vector<std::byte> empty_window(uint64_t ip, uint64_t tsc);

}  // namespace auxtrail::record::testing
