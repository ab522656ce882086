#include "event/attr_copy.h"

#include <cerrno>

#include "event/aux_action.h"
#include "event/inline_copy.h"

namespace auxtrail::event {
namespace {

constexpr uint32_t kPageBytes = 4096;
constexpr uint64_t kAllSampleTypes = PERF_SAMPLE_MAX - 1;
constexpr uint64_t kAllReadFormats = PERF_FORMAT_MAX - 1;
constexpr uint64_t kAllBranchTypes = PERF_SAMPLE_BRANCH_MAX - 1;
constexpr uint64_t kBranchPrivileges =
    PERF_SAMPLE_BRANCH_USER | PERF_SAMPLE_BRANCH_KERNEL | PERF_SAMPLE_BRANCH_HV;
constexpr uint64_t kPrivilegedBranches = PERF_SAMPLE_BRANCH_KERNEL | PERF_SAMPLE_BRANCH_HV;
constexpr uint32_t kMaxUserStackBytes = 65535;

// Of a 64-bit x86 program: ax to r15 but for the segments that 64-bit code does not have, and the
// vector registers, which PMUs may refuse later.
constexpr uint64_t kNoSegments = uint64_t{0xf} << 12;  // ds, es, fs, gs
constexpr uint64_t kNoRegisters = uint64_t{0xff} << 24;

bool are_registers(uint64_t mask) {
  return mask != 0 && (mask & (kNoSegments | kNoRegisters)) == 0;
}

uint32_t size_of(const std::byte* bytes) {
  uint32_t size = 0;
  __builtin_memcpy(&size, bytes + offsetof(perf_event_attr, size), sizeof size);
  return size == 0 ? uint32_t{PERF_ATTR_SIZE_VER0} : size;
}

bool all_zero(const std::byte* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (bytes[i] != std::byte{0}) return false;
  }
  return true;
}

bool has_reserved_bits(const Attr& attr) {
  return attr.v7.__reserved_1 != 0 || attr.v7.__reserved_2 != 0 ||
         (aux_action(attr.v7) & ~kAllAuxActions) != 0;
}

// Branches whose privilege is not said have the event's.
int check_branches(perf_event_attr& attr, const AttrPolicy& policy) {
  uint64_t mask = attr.branch_sample_type;
  if ((mask & ~kAllBranchTypes) != 0 || (mask & ~kBranchPrivileges) == 0) return EINVAL;
  if ((mask & kBranchPrivileges) == 0) {
    if (attr.exclude_kernel == 0) mask |= PERF_SAMPLE_BRANCH_KERNEL;
    if (attr.exclude_user == 0) mask |= PERF_SAMPLE_BRANCH_USER;
    if (attr.exclude_hv == 0) mask |= PERF_SAMPLE_BRANCH_HV;
    attr.branch_sample_type = mask;
  }
  return (mask & kPrivilegedBranches) != 0 && !policy.may_trace_kernel ? EACCES : 0;
}

int check_sampled_state(const perf_event_attr& attr) {
  if ((attr.sample_type & PERF_SAMPLE_REGS_USER) != 0 && !are_registers(attr.sample_regs_user)) {
    return EINVAL;
  }
  if ((attr.sample_type & PERF_SAMPLE_STACK_USER) != 0 &&
      (attr.sample_stack_user >= kMaxUserStackBytes || attr.sample_stack_user % 8 != 0)) {
    return EINVAL;
  }
  if ((attr.sample_type & PERF_SAMPLE_REGS_INTR) != 0 && !are_registers(attr.sample_regs_intr)) {
    return EINVAL;
  }
  const bool both_weights = (attr.sample_type & PERF_SAMPLE_WEIGHT) != 0 &&
                            (attr.sample_type & PERF_SAMPLE_WEIGHT_STRUCT) != 0;
  return both_weights ? EINVAL : 0;
}

bool life_makes_sense(const perf_event_attr& attr) {
  if (attr.inherit_thread != 0 && attr.inherit == 0) return false;
  if (attr.remove_on_exec != 0 && attr.enable_on_exec != 0) return false;
  return attr.sigtrap == 0 || attr.remove_on_exec != 0;
}

int check(Attr& attr, const AttrPolicy& policy) {
  perf_event_attr& fields = attr.v7;
  if (has_reserved_bits(attr)) return EINVAL;
  if ((fields.sample_type & ~kAllSampleTypes) != 0) return EINVAL;
  if ((fields.read_format & ~kAllReadFormats) != 0) return EINVAL;
  if ((fields.sample_type & PERF_SAMPLE_BRANCH_STACK) != 0) {
    if (const int error = check_branches(fields, policy); error != 0) return error;
  }
  if (fields.sample_max_stack == 0) fields.sample_max_stack = policy.max_stack_frames;
  if (const int error = check_sampled_state(fields); error != 0) return error;
  return life_makes_sense(fields) ? 0 : EINVAL;
}

}  // namespace

int check_open_flags(uint64_t flags) {
  constexpr uint64_t kKnown =
      PERF_FLAG_FD_NO_GROUP | PERF_FLAG_FD_OUTPUT | PERF_FLAG_PID_CGROUP | PERF_FLAG_FD_CLOEXEC;
  return (flags & ~kKnown) == 0 ? 0 : EINVAL;
}

int check_rights_and_rate(const Attr& attr, const AttrPolicy& policy) {
  const perf_event_attr& fields = attr.v7;
  if (fields.exclude_kernel == 0 && !policy.may_trace_kernel) return EACCES;
  if (fields.namespaces != 0 && !policy.is_perfmon) return EACCES;
  if (fields.freq != 0) {
    if (fields.sample_freq > policy.max_sample_rate_hz) return EINVAL;
  } else if (fields.sample_period >> 63 != 0) {
    return EINVAL;
  }
  const bool physical = (fields.sample_type & PERF_SAMPLE_PHYS_ADDR) != 0;
  return physical && !policy.may_trace_kernel ? EACCES : 0;
}

int check_cgroup_target(uint64_t flags, int pid, int cpu) {
  const bool is_cgroup = (flags & PERF_FLAG_PID_CGROUP) != 0;
  return is_cgroup && (pid == -1 || cpu == -1) ? EINVAL : 0;
}

AttrCopy copy_attr(const std::byte* attr, const AttrPolicy& policy) {
  AttrCopy copy;
  const uint32_t size = size_of(attr);
  const bool possible = size >= PERF_ATTR_SIZE_VER0 && size <= kPageBytes;
  if (!possible || (size > sizeof(Attr) && !all_zero(attr + sizeof(Attr), size - sizeof(Attr)))) {
    copy.error = E2BIG;
    copy.size_back = sizeof(Attr);
    return copy;
  }
  copy_bytes(reinterpret_cast<std::byte*>(&copy.attr), attr,
             size < sizeof(Attr) ? size : sizeof(Attr));
  copy.attr.v7.size = size;
  copy.error = check(copy.attr, policy);
  return copy;
}

}  // namespace auxtrail::event
