// What the programs of this folder share.
//
// Each program is a small case of something that a tracer which lives inside a process can break.
// It prints text that is the same on every run, and checks itself: a failed check prints its place
// on stdout and ends the program with status 3. So a program is a test on its own, and the
// transparency runner compares its native run with a traced one byte by byte. The programs spend a
// few tenths of a second of CPU time, so that at 1 kHz many windows open in them, at every place.
#pragma once

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace check {

[[noreturn]] inline void Failed(const char* file, int line, const char* what) {
  const char* base = std::strrchr(file, '/');
  std::printf("FAILED %s:%d: %s (errno %d)\n", base != nullptr ? base + 1 : file, line, what,
              errno);
  std::fflush(stdout);
  _exit(3);
}

// One step of xorshift64: the state must not be 0.
inline uint64_t Next(uint64_t state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

// Work with data-dependent branches: about 4 ns a round. The result depends on the two arguments
// alone.
__attribute__((noinline)) inline uint64_t Burn(uint64_t seed, uint64_t rounds) {
  uint64_t state = seed * 2654435761u + 88172645463325252u;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < rounds; ++i) {
    state = Next(state);
    if ((state & 3) == 0) {
      sum += state >> 5;
    } else if ((state & 4) != 0) {
      sum ^= state * 31;
    } else {
      sum = (sum << 3) | (sum >> 61);
    }
  }
  return sum;
}

// Makes the compiler believe that `value` is used.
inline void Keep(uint64_t value) { asm volatile("" : : "r"(value) : "memory"); }

inline uint64_t NowNs(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

inline unsigned long long Llu(uint64_t value) { return value; }  // for %llu and %llx

}  // namespace check

#define CHECK(condition)                                               \
  do {                                                                 \
    if (!(condition)) ::check::Failed(__FILE__, __LINE__, #condition); \
  } while (false)
