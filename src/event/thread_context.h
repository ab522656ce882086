// ThreadContext: the engine for one thread: an AUX leader, its samplers, a data ring and an AUX
// area.
//
// IN-PROCESS CODE: no allocation, no locks, no libc; runs in signal handlers of the traced program.
//
// Constant-initialisable, and valid in zeroed memory (inactive). The trace unit writes packets into
// aux() (or drives the PMU's registers) and then calls overflow(). overflow() is to be called with
// asynchronous signals masked: that is this machine's "interrupts off", and the engine makes no
// system call to get it. A synchronous signal that interrupts overflow() may call overflow() again:
// the inner sample is written whole, with AUX size 0 if it hit during a snapshot.
//
//   unit ──packets──► AuxArea ──snapshot_aux (Pmu)──► sample ──► DataRing ──► recorder
//
// After fork() the child must init() again: its leader is "on another CPU" until then, so that a
// sample there carries no AUX bytes of the parent.
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>

#include "event/aux_area.h"
#include "event/data_ring.h"
#include "event/event.h"
#include "event/sample.h"

namespace auxtrail::event {

struct ThreadConfig {
  const perf_event_attr* leader = nullptr;
  const perf_event_attr* sampler = nullptr;
  uint64_t leader_id = 0;
  uint64_t sampler_id = 0;
  uint32_t sampler_group = 0;
  // More samplers of the same leader, numbered from 1 on; their attributes, ids and groups. Those
  // of one group, if it is not 0, read each other's counts (PERF_FORMAT_GROUP); its first leads.
  struct Sampler {
    const perf_event_attr* attr = nullptr;
    uint64_t id = 0;
    uint32_t group = 0;
  };
  const Sampler* more_samplers = nullptr;
  size_t more_sampler_count = 0;    // at most ThreadContext::kMaxSamplers - 1
  const Pmu* leader_pmu = nullptr;  // e.g. &pmu::kIntelPt
  void* leader_context = nullptr;   // e.g. a pmu::PtContext*
  uint32_t tid = 0;                 // the calling thread

  perf_event_mmap_page* control = nullptr;  // initialised by DataRing::init_control_page
  std::byte* data = nullptr;
  uint64_t data_bytes = 0;  // 2^n
  std::byte* aux = nullptr;
  uint64_t aux_bytes = 0;     // 2^n
  bool aux_mirrored = false;  // AuxMode::mirrored
};

// What the trigger knows at an overflow.
struct SampleRegs {
  uint64_t ip = 0;
  uint32_t pid = 0;
  uint32_t tid = 0;
  uint64_t time_ns = 0;
  uint32_t cpu = 0;
  uint64_t period = 0;
  uint64_t addr = 0;
  uint64_t weight = 0;
};

struct OverflowResult {
  Outcome outcome = Outcome::kInactive;
  uint64_t aux_bytes = 0;  // AUX bytes in the written sample
};

class ThreadContext {
 public:
  constexpr ThreadContext() = default;
  ThreadContext(const ThreadContext&) = delete;
  ThreadContext& operator=(const ThreadContext&) = delete;

  // Opens and links both events, attaches the memory, sets up AUX and schedules both in. Returns 0
  // or an errno, with nothing attached. May be called again (thread slot reuse, fork child).
  [[nodiscard]] int init(const ThreadConfig& config);
  // Closes both events and lets go of the memory.
  void shutdown();

  // Delivers one sample of the sampler with that number. Async-signal-safe; see the head comment.
  OverflowResult overflow(const SampleRegs& regs, size_t sampler = 0);

  static constexpr size_t kMaxSamplers = 32;

  // What a sampler has counted, for PERF_SAMPLE_READ.
  void set_count(size_t sampler, uint64_t count) { samplers_[sampler].count = count; }

  [[nodiscard]] bool active() const { return samplers_[0].state == EventState::kActive; }
  [[nodiscard]] AuxArea& aux() { return aux_; }
  [[nodiscard]] DataRing& ring() { return ring_; }
  [[nodiscard]] Event& leader() { return leader_; }
  [[nodiscard]] Event& sampler() { return samplers_[0]; }
  // Samples of the first sampler that found no room, since init().
  [[nodiscard]] uint64_t lost() const { return samplers_[0].lost.load(); }

 private:
  int open_events(const ThreadConfig& config);
  int open_sampler(const perf_event_attr& attr, uint64_t id, uint32_t group);
  int attach_memory(const ThreadConfig& config);

  Event leader_;
  Event samplers_[kMaxSamplers];
  uint32_t groups_[kMaxSamplers] = {};
  size_t sampler_count_ = 0;
  DataRing ring_;
  AuxArea aux_;
};

}  // namespace auxtrail::event
