#include "event/software_pmu.h"

namespace auxtrail::event {

constinit const Pmu kSoftwareTrigger{.name = "software", .software_context = true};

}  // namespace auxtrail::event
