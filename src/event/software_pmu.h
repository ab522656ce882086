// kSoftwareTrigger: the PMU of samplers whose overflows come from outside (a kernel event's
// SIGTRAP, a timer).
//
// It has nothing to program: the trigger counts elsewhere and calls event_output(). It exists so
// that a sampler is an event like any other.
#pragma once

#include "event/pmu.h"

namespace auxtrail::event {

extern const Pmu kSoftwareTrigger;

}  // namespace auxtrail::event
