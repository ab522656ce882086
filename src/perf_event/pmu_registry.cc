#include "perf_event/pmu_registry.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace auxtrail::perf_event {

void PmuRegistry::add(const event::Pmu& pmu, PmuContextOf context) {
  pmus_.push_back(
      std::make_unique<RegisteredPmu>(RegisteredPmu{.pmu = &pmu, .context = std::move(context)}));
}

int PmuRegistry::init(PerfEvent& event, const perf_event_attr& attr, uint64_t id, uint32_t tid,
                      int cpu) {
  const auto named = std::find_if(pmus_.begin(), pmus_.end(), [&](const auto& registered) {
    return registered->pmu->type == attr.type;
  });
  if (named == pmus_.end()) return ENOENT;
  RegisteredPmu& registered = **named;
  void* const context = registered.context ? registered.context(tid, cpu) : nullptr;
  const int error = event.init(attr, id, *registered.pmu, context);
  if (error == 0) event.registration = &registered;
  return error;
}

int PmuRegistry::count_exclusive(PerfEvent& event) {
  if ((event.pmu->capabilities & event::kPmuCapExclusive) == 0) return 0;
  int64_t& users = event.registration->exclusive_users;
  const bool of_task = event.task != 0;
  if (of_task ? users < 0 : users > 0) return EBUSY;
  users += of_task ? 1 : -1;
  event.counted_as_exclusive = true;
  return 0;
}

void PmuRegistry::uncount_exclusive(PerfEvent& event) {
  if (!event.counted_as_exclusive) return;
  event.registration->exclusive_users -= event.task != 0 ? 1 : -1;
  event.counted_as_exclusive = false;
}

bool PmuRegistry::all_free() const {
  return std::all_of(pmus_.begin(), pmus_.end(),
                     [](const auto& registered) { return registered->exclusive_users == 0; });
}

}  // namespace auxtrail::perf_event
