// Counting: instructions and branches of the program, counted by the unit itself and exactly.
//
// In continuous trace each log entry stands for a known way through a superblock, so the unit knows
// how many instructions and branches the thread has executed, without any counter in hardware. A
// count that crosses a period does so in the middle of a log, after the fact: the packets are then
// led to the very instruction behind the one that was the last of the period, and the sample is
// taken there. So samples have no skid, and two runs of a program that does the same are sampled at
// the same instructions. What only the thread itself could have told at that moment (registers, the
// time) is not known any more: the time is that of taking the sample.
//
// A branch is what Intel and AMD count as one, but for far ones: jumps, conditional (taken or not)
// or not, calls and returns. A system call is an instruction and no branch. An instruction that is
// repeated (rep) is one. Not counted is what runs natively; how often, and its CPU time, are.
//
// Code that does not count pays one test per drained log. Async-signal-safe.
#pragma once

#include <cstdint>

#include "channel/layout.h"
#include "unit/passage.h"

namespace auxtrail::unit {

struct Thread;

struct Counts {
  uint64_t insns = 0;
  uint64_t branches = 0;
};

struct Counting {
  static constexpr uint64_t kNever = ~uint64_t{0};

  // One sampler. Of those that the kernel counts, only what it has told.
  struct Each {
    uint64_t period = 0;   // 0: it is only read
    uint64_t next = 0;     // the count of its next overflow
    uint64_t elapsed = 0;  // since the overflow before, at the last one
    uint64_t previous = 0;
    // With a frequency: the wanted CPU time between overflows, and when the rate was last measured.
    uint64_t interval_ns = 0;
    uint64_t measured_count = 0;
    uint64_t measured_ns = 0;
    uint64_t kernel_overflows = 0;
  };

  bool active = false;  // some sampler is counted by the unit
  Counts counts;        // up to where the packets lead
  Counts due{kNever, kNever};
  uint64_t left_ns = 0;  // the thread's CPU time when it left the cache; 0: it has not
  Each each[channel::kMaxSamplers];
};

// For a thread that has just got its slot.
void start_counting(Thread& thread, uint32_t tid);

// Turns the log into packets, and counts.
void empty_log(Thread& thread);
// The packets of what happened in a superblock that was left in the middle, and counts it.
void finish_way(Thread& thread, const Way& way);

// The system call that the packets lead to is going to be made; and was not made after all. It may
// be the last instruction of a period: take_overflow() behind it.
void count_system_call(Thread& thread);
void uncount_system_call(Thread& thread);
// The sample of an overflow that is due at `pc`, where the packets are.
void take_overflow(Thread& thread, uint64_t pc);

// The thread leaves the cache, or is back.
void begin_native(Thread& thread);
void end_native(Thread& thread);

// Makes the slot's counters those of now.
void publish_counts(Thread& thread);
// Gives the engine's events what they have counted, for samples that tell it (PERF_SAMPLE_READ).
void set_event_counts(Thread& thread);
// What a sample of that sampler says of its period.
uint64_t sampled_period(const Thread& thread, uint32_t sampler);

}  // namespace auxtrail::unit
