// The changes of stack and context that C++ can't say: running a function on the unit's private
// stack and leaving it early, entering and leaving signal handlers.
//
// The program's stack at an overflow may be a few hundred bytes from its end (small thread stacks,
// coroutines, a small alternate signal stack): handlers do their work elsewhere.
#pragma once

#include <cstdint>

extern "C" {
// Calls function(argument0, argument1) on the stack that ends at `stack_top` (16-byte aligned).
void auxtrail_call_on_stack(void* argument0, void* argument1, void* function, uint64_t stack_top);
// The instruction after that call; with rsp = stack_top - 16 it returns to the original caller.
extern const char auxtrail_call_on_stack_return[];
// Signal handler entry (SA_SIGINFO): routes in C, then either returns or jumps to the program's own
// handler with the stack and registers exactly as the kernel made them.
void auxtrail_signal_entry(int signal, void* info, void* context);
// From there to here: that entry, and the return from its signal.
extern const char auxtrail_signal_code_end[];
// Saves the extended state's `features` to `extended` (64-byte aligned) and returns from the signal
// whose frame has `context`.
[[noreturn]] void auxtrail_signal_return(void* context, void* extended, uint64_t features);
}
