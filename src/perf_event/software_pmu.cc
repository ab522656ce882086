#include "perf_event/software_pmu.h"

#include <linux/hw_breakpoint.h>

#include <cerrno>

#include "event/overflow.h"

namespace auxtrail::perf_event {
namespace {

using event::Event;

constexpr uint64_t kSoftwareEventCount = 12;  // PERF_COUNT_SW_MAX of Linux 5.13 and later

bool is_clock(uint64_t config) {
  return config == PERF_COUNT_SW_CPU_CLOCK || config == PERF_COUNT_SW_TASK_CLOCK;
}
bool has_branches(const Event& event) {
  return (event.attr.sample_type & PERF_SAMPLE_BRANCH_STACK) != 0;
}

// Starts the next period; how many have passed. `period_left` is negative while one is running.
uint64_t begin_period(Event& event) {
  const uint64_t period = event.hw.last_period;
  event.hw.last_period = event.hw.sample_period;
  if (event.hw.period_left < 0 || period == 0) return 0;
  const uint64_t passed = (period + static_cast<uint64_t>(event.hw.period_left)) / period;
  event.hw.period_left -= static_cast<int64_t>(passed * period);
  return passed;
}

int add(Event& event, uint32_t /*flags*/) {
  event.hw.stopped = false;
  if (!is_sampling(event)) return 0;
  event.hw.last_period = event.hw.sample_period;
  (void)begin_period(event);
  return 0;
}
void start(Event& event, uint32_t /*flags*/) { event.hw.stopped = false; }
void stop(Event& event, uint32_t /*flags*/) { event.hw.stopped = true; }

// A clock's frequency is a period as well.
void use_period(Event& event) {
  if (event.attr.freq == 0 || event.attr.sample_freq == 0) return;
  event.attr.sample_period = 1'000'000'000 / event.attr.sample_freq;
  event.attr.freq = 0;
  event.hw.sample_period = event.hw.last_period = event.attr.sample_period;
  event.hw.period_left = static_cast<int64_t>(event.attr.sample_period);
}

int init_software(Event& event) {
  if (event.attr.type != PERF_TYPE_SOFTWARE) return ENOENT;
  if (has_branches(event)) return EOPNOTSUPP;
  if (is_clock(event.attr.config)) use_period(event);
  return event.attr.config < kSoftwareEventCount ? 0 : ENOENT;
}

int init_breakpoint(Event& event) {
  const perf_event_attr& attr = event.attr;
  if (attr.type != PERF_TYPE_BREAKPOINT) return ENOENT;
  if (has_branches(event)) return EOPNOTSUPP;
  const bool is_code = attr.bp_type == HW_BREAKPOINT_X;
  if (!is_code && attr.bp_type != HW_BREAKPOINT_W && attr.bp_type != HW_BREAKPOINT_RW) {
    return EINVAL;
  }
  if (is_code && attr.bp_len != sizeof(long)) return EINVAL;
  if (is_code) return 0;
  if ((attr.bp_len & (attr.bp_len - 1)) != 0) return EINVAL;
  if ((attr.bp_addr & (attr.bp_len - 1)) != 0) return EINVAL;
  return attr.bp_len <= sizeof(long) ? 0 : EOPNOTSUPP;  // ranges: AMD's extension
}

bool overflows_at_each(const Event& event) {
  return (event.attr.sample_type & PERF_SAMPLE_PERIOD) != 0 && event.attr.freq == 0;
}

void overflow(PerfEvent& event, uint64_t times, event::SampleData& data) {
  for (uint64_t i = 0; i < times && !event.pending_disable.load(); ++i) {
    (void)event::event_overflow(event, data);
  }
}

}  // namespace

constinit const event::Pmu kSoftwareEvents{.name = "software",
                                           .type = PERF_TYPE_SOFTWARE,
                                           .capabilities = event::kPmuCapNoNmi,
                                           .software_context = true,
                                           .event_init = init_software,
                                           .add = add,
                                           .start = start,
                                           .stop = stop};
constinit const event::Pmu kBreakpoints{.name = "breakpoint",
                                        .type = PERF_TYPE_BREAKPOINT,
                                        .software_context = true,
                                        .event_init = init_breakpoint,
                                        .add = add,
                                        .start = start,
                                        .stop = stop};

bool is_counted(const PerfEvent& event, uint32_t type, uint64_t config) {
  if (event.attr.type != type || event.hw.stopped || event.attr.exclude_user != 0) return false;
  if (event.pmu != &kSoftwareEvents && event.pmu != &kBreakpoints) return false;
  if (type == PERF_TYPE_SOFTWARE) return event.attr.config == config;
  return config >= event.attr.bp_addr && config < event.attr.bp_addr + event.attr.bp_len;
}

void count_software(PerfEvent& event, uint64_t number, event::SampleData& data) {
  event.count += number;
  if (!is_sampling(event)) return;
  if (event.attr.type == PERF_TYPE_BREAKPOINT) data.addr = event.attr.bp_addr;
  if (overflows_at_each(event)) {
    data.period = number;
    return overflow(event, 1, data);
  }
  data.period = event.hw.last_period;
  if (number == 1 && event.hw.sample_period == 1 && event.attr.freq == 0) {
    return overflow(event, 1, data);
  }
  event.hw.period_left += static_cast<int64_t>(number);
  if (event.hw.period_left >= 0) overflow(event, begin_period(event), data);
}

}  // namespace auxtrail::perf_event
