// Stacks with no room to spare. Delivering the trigger puts a signal frame of some kilobytes on the
// program's stack, which a program with small stacks did not plan for.
//
//  - Threads created with a small stack of libc's choosing get that much more of it.
//  - Once a thread has a small alternate signal stack, handlers that may run on it (SA_ONSTACK) run
//    with the trigger blocked: a second frame may not fit above the first.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cstddef>
#include <cstdint>

namespace auxtrail::unit {

// Whether a thread created with these attributes needs a larger stack, and how large.
bool needs_headroom(const pthread_attr_t* attr, size_t* bytes);

// Whether handlers with these sa_flags must run with SIGTRAP blocked.
bool keeps_trigger_off(uint64_t action_flags);

using SigactionFunction = int(int, const struct sigaction*, struct sigaction*);

// sigaction() for the signals that are not watched: as `real`, with the trigger blocked where it
// must be. Async-signal-safe.
int change_other_action(int signal, const struct sigaction* action, struct sigaction* old,
                        SigactionFunction* real);

}  // namespace auxtrail::unit
