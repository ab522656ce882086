// PmuRegistry: the PMUs there are, by type, and who has the exclusive ones.
//
// Of an exclusive PMU (Intel PT) there are either events of tasks or events of CPUs at one time,
// for both would fight for the same unit. Reference: checklist A11.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "event/pmu.h"
#include "perf_event/perf_event.h"

namespace auxtrail::perf_event {

// What an event's hw.context is to be: the PMU's state for a thread, or for a CPU where tid is 0.
using PmuContextOf = std::function<void*(uint32_t tid, int cpu)>;

struct RegisteredPmu {
  const event::Pmu* pmu = nullptr;
  PmuContextOf context;
  int64_t exclusive_users = 0;  // events of tasks if positive, of CPUs if negative
};

class PmuRegistry {
 public:
  void add(const event::Pmu& pmu, PmuContextOf context);

  // Makes `event` an event of the PMU that attr.type names, or of the first that takes it. 0, or
  // the PMU's errno; ENOENT if it is nobody's.
  [[nodiscard]] int init(PerfEvent& event, const perf_event_attr& attr, uint64_t id, uint32_t tid,
                         int cpu);

  // EBUSY if the PMU is in exclusive use by the other kind; else counts the event.
  [[nodiscard]] int count_exclusive(PerfEvent& event);
  void uncount_exclusive(PerfEvent& event);
  // Every exclusive PMU is free.
  [[nodiscard]] bool all_free() const;

 private:
  std::vector<std::unique_ptr<RegisteredPmu>> pmus_;
};

}  // namespace auxtrail::perf_event
