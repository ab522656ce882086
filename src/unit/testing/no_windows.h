// What the unit's tests define themselves, as they link no windows: their superblocks are never
// run. For one source file of a test.
#pragma once

#include "unit/session.h"
#include "unit/thread_state.h"
#include "unit/window.h"

namespace auxtrail::unit {

__thread TlsBlock tls_block __attribute__((tls_model("initial-exec")));
Session session;
WindowConfig window_config;
uint64_t unit_exit(Thread* /*thread*/) { return 0; }
uint64_t unit_indirect(Thread* /*thread*/) { return 0; }

}  // namespace auxtrail::unit
