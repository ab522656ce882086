#include "event/software_pmu.h"

namespace auxtrail::event {

constinit const Pmu kSoftwareTrigger{.name = "software"};

}  // namespace auxtrail::event
