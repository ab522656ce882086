// FixedResults: makes what the kernel tells a program the same in both processes of a pair.
//
// Process ids, random bytes and clocks differ from process to process, and through registers and
// memory would make two runs of one program differ. Applied behind every system call of the program
// itself (never of the unit's), these results are replaced: ids by constants, random bytes by a
// pattern, clocks by one that ticks once per call.
#pragma once

#include <cstdint>

#include "tracee.h"

namespace auxtrail::lockstep {

class FixedResults {
 public:
  [[nodiscard]] static bool concerns(uint64_t number);
  // `before`: the registers at the call's entry. The process stands at its exit.
  void apply(Tracee& tracee, const Registers& before);

 private:
  void set_time(Tracee& tracee, uint64_t address, uint64_t units_per_second);

  uint64_t clock_ns_ = 1700000000000000000;
  uint8_t random_ = 1;
};

// Behind execve: fixed AT_RANDOM bytes (stack protector, pointer guard), and no vdso, whose clocks
// read the CPU's.
void FixStartState(Tracee& tracee);

// Of the image just executed: where ld.so hands over to it.
uint64_t EntryAddress(const Tracee& tracee);

}  // namespace auxtrail::lockstep
