// What the system is set to: the kernel.perf_event_* settings and limits that open and mmap look
// at.
//
// The defaults are Linux's own. Reference: perf_event_open(2), "perf_event related configuration
// files".
#pragma once

#include <cstdint>

namespace auxtrail::perf_event {

inline constexpr uint64_t kPageBytes = 4096;

struct Settings {
  uint32_t cpus = 2;
  int paranoid = 2;                      // kernel.perf_event_paranoid
  uint64_t max_sample_rate_hz = 100000;  // kernel.perf_event_max_sample_rate
  uint16_t max_stack_frames = 127;       // kernel.perf_event_max_stack
  uint64_t mlock_kib = 516;              // kernel.perf_event_mlock_kb, for each user and CPU
  uint64_t memlock_bytes = 8 << 20;      // RLIMIT_MEMLOCK: what may be pinned beyond that
  uint32_t max_descriptors = 1024;       // RLIMIT_NOFILE
  // The largest areas that there is memory for: in Linux, whose table of pages is 4 MiB at most.
  uint64_t max_data_pages = (1 << 19) - 1;
  uint64_t max_aux_pages = 1 << 19;
};

}  // namespace auxtrail::perf_event
