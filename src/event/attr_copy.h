// Taking in a caller's perf_event_attr: the first steps of perf_event_open(2).
//
// IN-PROCESS CODE: no allocation, no locks, no libc.
//
// The structure has grown over the years and its size field says which one the caller knows, so
// that old callers work on new systems and new callers on old ones as long as they use nothing new.
// copy_attr() then refuses what makes no sense on its own, whatever PMU, group and rights the event
// will have; the first fault in the order below is the one reported.
//
// Reference: perf_event_open(2); checklist A1 to A5; verified against the running kernel in
// attr_oracle_test.cc.
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>

namespace auxtrail::event {

// The structure of VER8, of which Debian 12's header lacks the last field.
struct Attr {
  perf_event_attr v7{};
  uint64_t config3 = 0;
};
inline constexpr uint32_t kAttrBytesVer8 = 136;
static_assert(sizeof(Attr) == kAttrBytesVer8);

// What the caller may and what the system is set to.
struct AttrPolicy {
  bool is_perfmon = false;               // has CAP_PERFMON (or CAP_SYS_ADMIN)
  bool may_trace_kernel = false;         // has it, or kernel.perf_event_paranoid is 1 or less
  uint64_t max_sample_rate_hz = 100000;  // kernel.perf_event_max_sample_rate
  uint16_t max_stack_frames =
      127;  // kernel.perf_event_max_stack: stands for a sample_max_stack of 0
};

// Checklist A1: EINVAL for flags that perf_event_open does not know, before anything else.
[[nodiscard]] int check_open_flags(uint64_t flags);

struct AttrCopy {
  int error = 0;           // 0 or an errno
  uint32_t size_back = 0;  // with E2BIG: what the caller's size field is set to; else 0
  Attr attr;               // with error 0; v7.size is the caller's, or 64 for 0
};

// `attr` has as many readable bytes as its size field says; at least 64 where that says less.
//
// E2BIG   size below 64, above a page, or with a byte set behind what is known here
// EINVAL  reserved bits; unknown sample_type or read_format; no or unknown branch types; registers
//         that there are not; a user stack of 65535 bytes and more, or not of whole words; WEIGHT
//         with WEIGHT_STRUCT; inherit_thread without inherit; remove_on_exec with enable_on_exec;
//         sigtrap without remove_on_exec
// EACCES  branches of the kernel for a caller that may not trace it
[[nodiscard]] AttrCopy copy_attr(const std::byte* attr, const AttrPolicy& policy);

// What follows it, still before the event's PMU, task and group are looked at. 0 or
// EACCES  the kernel's events or physical addresses without the right to trace it; namespaces
//         without CAP_PERFMON
// EINVAL  a frequency above the limit; a period of 2^63 and more
[[nodiscard]] int check_rights_and_rate(const Attr& attr, const AttrPolicy& policy);
// And then: a control group (PERF_FLAG_PID_CGROUP; `pid` is its descriptor) is followed on one CPU
// only. 0 or EINVAL.
[[nodiscard]] int check_cgroup_target(uint64_t flags, int pid, int cpu);

}  // namespace auxtrail::event
