// What windows are made of (window.cc), for the other way to use them: continuous.cc.
#pragma once

#include <ucontext.h>

#include <atomic>
#include <cstdint>

#include "channel/layout.h"
#include "unit/code_cache.h"
#include "unit/stack_switch.h"
#include "unit/thread_state.h"

namespace auxtrail::unit {

// The most bytes that `units` of the log become, with what ends a trace behind them.
constexpr size_t packet_room(size_t units) {
  constexpr size_t kReservedBytes = 8 + kIndirectUnits * kMaxUnitBytes6 / 6 + 1 +
                                    pt::PacketWriter::kMaxEndBytes + pt::PacketWriter::kSlackBytes;
  return units * kMaxUnitBytes6 / 6 + kReservedBytes;
}

// Of the log, the most that becomes packets between two commits of continuous trace.
inline constexpr size_t kMaxStretchUnits = 1024;

// A strictly growing value for TSC packets.
uint64_t next_tsc(Thread& thread, uint64_t ns);

// Where a stub goes on for the program address `pc`; what leads there goes straight next time.
enum class Link : uint8_t { kExit, kIndirect, kNone };
uint64_t continue_at(Thread& thread, uint64_t pc, Link link, uint32_t exit_number = 0);

// The superblock at `pc`, for a thread that is about to enter the cache; null and why if there is
// none. Takes the lock.
Block* block_to_enter(Thread& thread, uint64_t pc, channel::Reason* why);
// Whether a window may open here at all; if not, why.
bool can_enter(const ucontext_t& context, channel::Reason* why);
// Makes `context`, the program's own at `block`'s address, go on in the cache.
void enter_cache(Thread& thread, ucontext_t& context, const Block& block);

// Writes a sample of that sampler, whose newest bytes end at `pc`.
void write_sample(Thread& thread, uint64_t pc, uint32_t sampler);
void count(Thread& thread, channel::Reason reason);
// For handlers: calls function(&thread, argument) on a stack of which `stack_end` is the end, from
// where abort_translation() can return early.
template <class Argument>
void call_on_stack(Thread& thread, Argument* argument, void (*function)(Thread*, Argument*),
                   uint64_t stack_end) {
  thread.handler_stack = stack_end;
  auxtrail_call_on_stack(&thread, argument, reinterpret_cast<void*>(function), stack_end);
}

// To a counter that the calling thread alone writes.
inline void add(std::atomic<uint64_t>& counter, uint64_t amount) {
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace auxtrail::unit
