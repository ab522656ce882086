// A thread's place in the shared memory, and the state it has for that (thread_state.h).
#pragma once

#include <cstdint>

namespace auxtrail::unit {

struct Thread;

// Claims a free slot for the calling thread and prepares its state. Null if there is none or no
// memory for it. Async-signal-safe.
Thread* claim_thread(uint32_t tid);

}  // namespace auxtrail::unit
