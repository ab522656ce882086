// PERF_EVENT_IOC_SET_OUTPUT and PERF_FLAG_FD_OUTPUT: an event that writes into another's buffer.
#include <cerrno>

#include "perf_event/kernel.h"

namespace auxtrail::perf_event {

// EINVAL for two events whose records cannot stand in one buffer, or an event that has a buffer
// mapped itself, or a buffer that there is not.
int Kernel::set_output(PerfEvent& event, PerfEvent* output) {
  if (output == nullptr) {
    if (event.mmap_count != 0) return EINVAL;
    attach_buffer(event, nullptr);
    return 0;
  }
  if (output == &event || output->cpu != event.cpu) return EINVAL;
  if (output->cpu == -1 && output->task != event.task) return EINVAL;
  if (output->clock != event.clock) return EINVAL;
  if (output->attr.write_backward != event.attr.write_backward) return EINVAL;
  if (has_aux(event) && has_aux(*output) && event.pmu != output->pmu) return EINVAL;
  if (event.mmap_count != 0 || output->buffer == nullptr) return EINVAL;
  const Buffer& buffer = *output->buffer;
  const bool in_normal_mode = buffer.has_aux() && !output->aux->overwrite();
  if (in_normal_mode && is_sampled(event)) return EINVAL;
  attach_buffer(event, output->buffer);
  return 0;
}

}  // namespace auxtrail::perf_event
