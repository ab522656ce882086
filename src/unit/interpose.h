// See interpose.cc.
#pragma once

// What syscall(2) the function and the gate tell the unit of a system call that is about to be
// made.
struct SyscallResult {
  long value;  // as the kernel's
  long taken;  // 0: the call is to be made as it is
};
extern "C" {
void auxtrail_before_syscall(long number, long a, long b, long c, long d, long e);
SyscallResult auxtrail_rt_sigaction(long number, long signal, long action, long old, long bytes);
}

namespace auxtrail::unit {

// They look libc's functions up before the program runs; the first calls the others.
void resolve_interposed();
void resolve_interposed_waits();
void resolve_interposed_old_signals();

// The kernel's mask of the calling thread gets the program's SIGTRAP, and the kernel one that was
// kept.
void hand_over_trap();

// Whether after prctl() with that option the kernel may answer the unit's own system calls with a
// signal.
bool forbids_our_calls(int option);

// Whether the program asked signal() to install handlers of this watched signal that interrupt
// system calls (siginterrupt(3)).
bool is_interrupting(int signal);

}  // namespace auxtrail::unit
