// What this machine and its kernel offer for recording: facts read from /proc and /sys, each with
// its absence as a value, and probes that really try. No policy; `record` and `doctor` decide.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace auxtrail::record {

// One number from a file such as /proc/sys/kernel/perf_event_paranoid; nothing if unreadable.
std::optional<int64_t> read_number(const std::string& path);

struct IntelPt {
  bool present = false;
  uint32_t pmu_type = 0;  // attr.type of its events; without the PMU: a number that no PMU has
};
IntelPt find_intel_pt();

// What the choice of events depends on.
struct MachineFacts {
  IntelPt intel_pt{};
  uint64_t max_rate_hz = 0;  // of the kernel and of the trace unit
  bool hardware_counters = false;
  std::string tracefs{};
};
MachineFacts machine_facts();

// kernel.perf_event_max_sample_rate; a large number if unknown.
uint64_t max_sample_rate_hz();
// Bytes of rings that an unprivileged user may map per CPU.
uint64_t mlock_limit_bytes();
// Numbers of the CPUs that are online.
std::vector<uint32_t> online_cpus();

// Opens an event with this attr on the calling thread, disabled, and closes it again. 0 or the
// errno of perf_event_open.
int probe_event(const perf_event_attr& attr);
// Opens a software event with attr.sigtrap on the calling thread as the trace unit does. 0 if it
// works, else the errno of perf_event_open (EINVAL: a kernel before 5.19,
// channel/kernel_version.h).
int probe_sigtrap_trigger();
// The same for a hardware counter (cycles); ENOENT or EOPNOTSUPP: the machine has none.
int probe_hardware_counter();
// Whether memory may be writable and executable under two addresses at once (the code cache).
int probe_executable_memory();
// Whether the calling thread runs with a CET shadow stack.
bool shadow_stack_enabled();
// Whether a seccomp filter restricts this process, as in most containers; children inherit it.
bool seccomp_enabled();
// How many filters restrict this process; 0 too on kernels that do not tell (before 5.9).
unsigned seccomp_filters();
// Whether the CPU has the flag, a word of /proc/cpuinfo such as "bmi2".
bool cpu_has_flag(const std::string& flag);

}  // namespace auxtrail::record
