// See trigger.h.
#include "unit/trigger.h"

#include <errno.h>
#include <signal.h>
#include <sys/utsname.h>
#include <time.h>

#include "channel/kernel_version.h"
#include "unit/signals.h"
#include "unit/sys.h"

namespace auxtrail::unit {
namespace {

// CPU-time timers expire at the scheduler's tick: more than this the usual kernels do not give.
constexpr uint64_t kTimerMaxHz = 250;

uint64_t timer_period_ns = 0;  // 0: the trigger is no timer
uint64_t timer_cookie = 0;
int first_timer = -1;  // of the thread that opened the trigger

// A descriptor or -errno.
long open_event(const perf_event_attr& attr, uint64_t cookie) {
  utsname name{};
  if (sys::is_error(sys::call(SYS_uname, sys::arg(&name))) ||
      !channel::waits_for_blocked_sigtrap(name.release)) {
    return -EINVAL;  // as a kernel says that knows no attr.sigtrap
  }
  perf_event_attr mine = attr;
  mine.sig_data = cookie;
  return sys::call(SYS_perf_event_open, sys::arg(&mine), 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

// The calling thread's. Its number, or -errno.
int start_timer() {
  sigevent notify{};
  notify.sigev_notify = SIGEV_THREAD_ID;
  notify.sigev_signo = SIGTRAP;
  notify.sigev_value.sival_ptr = reinterpret_cast<void*>(timer_cookie);
  notify._sigev_un._tid = sys::gettid();
  int timer = 0;
  const long result =
      sys::call(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, sys::arg(&notify), sys::arg(&timer));
  if (sys::is_error(result)) return static_cast<int>(result);
  itimerspec spec{};
  spec.it_interval.tv_sec = static_cast<time_t>(timer_period_ns / 1000000000);
  spec.it_interval.tv_nsec = static_cast<long>(timer_period_ns % 1000000000);
  spec.it_value = spec.it_interval;
  (void)sys::call(SYS_timer_settime, timer, 0, sys::arg(&spec), 0);
  return timer;
}

}  // namespace

uint64_t period_of(const perf_event_attr& attr) {
  if (attr.freq == 0) return attr.sample_period != 0 ? attr.sample_period : 1;
  return attr.sample_freq != 0 ? 1000000000 / attr.sample_freq : 1000000;
}

int sampler_event_open(const perf_event_attr& trigger, uint32_t number) {
  return static_cast<int>(open_event(trigger, kTriggerCookie + number));
}

OpenTrigger trigger_open(const perf_event_attr& attr, uint64_t cookie) {
  OpenTrigger result;
  const long fd = open_event(attr, cookie);
  if (!sys::is_error(fd)) {
    result.kind = channel::Trigger::kKernelEvent;
    result.fd = static_cast<int>(fd);
    return result;
  }
  result.kernel_errno = static_cast<int>(-fd);
  constexpr uint64_t kShortest = 1000000000 / kTimerMaxHz;
  const uint64_t wanted = period_of(attr);
  timer_period_ns = wanted < kShortest ? kShortest : wanted;
  timer_cookie = cookie;
  result.kind = channel::Trigger::kThreadTimer;
  result.timer_hz = static_cast<uint32_t>(1000000000 / timer_period_ns);
  first_timer = start_timer();
  if (first_timer < 0) result.timer_errno = -first_timer;
  return result;
}

void trigger_start_thread() {
  if (timer_period_ns != 0) (void)start_timer();
}

void trigger_close() {
  if (first_timer >= 0) (void)sys::call(SYS_timer_delete, first_timer);
  first_timer = -1;
  timer_period_ns = 0;
}

bool trigger_is_timer() { return timer_period_ns != 0; }

}  // namespace auxtrail::unit
