// See interpose.cc.
#pragma once

#include <cstdint>

namespace auxtrail::unit {

// They look libc's functions up before the program runs; the first calls the others.
void resolve_interposed();
void resolve_interposed_waits();
void resolve_interposed_old_signals();

// Whether signal() is to install handlers of a watched signal that interrupt system calls
// (siginterrupt(3)); at first it is not.
void set_interrupting(int signal, bool interrupting);

// Changes the calling thread's mask as the program sees it, as rt_sigprocmask(2) does; null
// pointers too. Returns 0 or an errno. libc's own signals are the caller's business.
int change_mask(int how, const uint64_t* set, uint64_t* old);

}  // namespace auxtrail::unit
