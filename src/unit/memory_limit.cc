// See memory_limit.h.
#include "unit/memory_limit.h"

#include <errno.h>
#include <sys/resource.h>

#include "unit/export.h"
#include "unit/signals.h"
#include "unit/sys.h"

namespace auxtrail::unit {
namespace {

bool is_memory_limit(int resource) { return resource == RLIMIT_AS || resource == RLIMIT_DATA; }

long kernel_prlimit(int pid, int resource, const rlimit* limit, rlimit* old) {
  return sys::call(SYS_prlimit64, pid, resource, sys::arg(limit), sys::arg(old));
}

rlim_t shifted(rlim_t value, int64_t by) {
  return value == RLIM_INFINITY ? value : value + static_cast<rlim_t>(by);
}

uint64_t added_bytes = 0;  // to the limits the program set

int change_limit(int pid, int resource, const rlimit* limit, rlimit* old) {
  const bool ours = handlers_installed() && is_own_process() && is_memory_limit(resource) &&
                    (pid == 0 || pid == sys::getpid());
  rlimit wider{};
  const auto before = static_cast<int64_t>(added_bytes);
  if (ours && limit != nullptr) {
    sys::may_map = limit->rlim_cur == RLIM_INFINITY;
    if (!sys::may_map) added_bytes = sys::mapped_bytes;
    const auto more = static_cast<int64_t>(added_bytes);
    wider = {shifted(limit->rlim_cur, more), shifted(limit->rlim_max, more)};
    limit = &wider;
  }
  const long result = kernel_prlimit(pid, resource, limit, old);
  if (sys::is_error(result)) {
    errno = static_cast<int>(-result);
    return -1;
  }
  if (ours && old != nullptr) {
    old->rlim_cur = shifted(old->rlim_cur, -before);
    old->rlim_max = shifted(old->rlim_max, -before);
  }
  return 0;
}

}  // namespace

bool address_space_is_limited() {
  constexpr int kResources[] = {RLIMIT_AS, RLIMIT_DATA};
  for (const int resource : kResources) {
    rlimit limit{};
    if (!sys::is_error(kernel_prlimit(0, resource, nullptr, &limit)) &&
        limit.rlim_cur != RLIM_INFINITY) {
      return true;
    }
  }
  return false;
}

}  // namespace auxtrail::unit

using auxtrail::unit::change_limit;  // NOLINT: the exported functions below are libc's names

AUXTRAIL_EXPORT int setrlimit(__rlimit_resource_t resource, const rlimit* limit) noexcept {
  return change_limit(0, static_cast<int>(resource), limit, nullptr);
}
AUXTRAIL_EXPORT int setrlimit64(__rlimit_resource_t resource, const rlimit64* limit) noexcept {
  return change_limit(0, static_cast<int>(resource), reinterpret_cast<const rlimit*>(limit),
                      nullptr);
}
AUXTRAIL_EXPORT int getrlimit(__rlimit_resource_t resource, rlimit* limit) noexcept {
  return change_limit(0, static_cast<int>(resource), nullptr, limit);
}
AUXTRAIL_EXPORT int getrlimit64(__rlimit_resource_t resource, rlimit64* limit) noexcept {
  return change_limit(0, static_cast<int>(resource), nullptr, reinterpret_cast<rlimit*>(limit));
}
AUXTRAIL_EXPORT int prlimit(pid_t pid, __rlimit_resource resource, const rlimit* limit,
                            rlimit* old) noexcept {
  return change_limit(pid, static_cast<int>(resource), limit, old);
}
AUXTRAIL_EXPORT int prlimit64(pid_t pid, __rlimit_resource resource, const rlimit64* limit,
                              rlimit64* old) noexcept {
  return change_limit(pid, static_cast<int>(resource), reinterpret_cast<const rlimit*>(limit),
                      reinterpret_cast<rlimit*>(old));
}
