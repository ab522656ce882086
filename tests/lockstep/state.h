// State: is the user-visible state of two processes the same?
//
// Everything a program can see of its thread: general registers, flags, segment bases, the whole
// XSAVE area, signal mask, and its writable memory. What is left out, and why:
//  - RF and TF of the flags: the debugger's.
//  - x87's last instruction and operand pointers (FOP, FIP, FDP): they name the code cache after a
//  window, as they name
//    whatever code ran last; the unit does not promise to hide that (docs say so).
//  - stack memory below the red zone: any signal overwrites it.
//  - the unit's own thread-local block: found as the one place below the thread pointer that a
//  window changes, and
//    no larger than the unit's TLS segment.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layout.h"
#include "tracee.h"

namespace auxtrail::lockstep {

inline constexpr uint64_t kRedZoneBytes = 128;
// A signal frame with all vector state, and a handler's frames.
inline constexpr uint64_t kDeadStackBytes = 32768;

// Messages, one per register that differs; empty if none does.
std::vector<std::string> CompareRegisters(const Registers& traced, const Registers& plain);
std::vector<std::string> CompareExtended(std::span<const std::byte> traced,
                                         std::span<const std::byte> plain);

class MemoryComparison {
 public:
  explicit MemoryComparison(const std::string& unit_path);

  // Compares `lines` of both; the stack that holds `rsp` only from the red zone up.
  std::vector<std::string> compare(const Tracee& traced, const Tracee& plain,
                                   const std::vector<MapLine>& lines, const Registers& registers);
  [[nodiscard]] uint64_t bytes_compared() const { return bytes_compared_; }

 private:
  bool is_unit_block(uint64_t address, uint64_t thread_pointer);

  uint64_t unit_tls_bytes_;
  uint64_t block_start_ = 0;  // of the unit's thread-local block, as far as it was seen to differ
  uint64_t block_end_ = 0;
  uint64_t bytes_compared_ = 0;
  std::vector<std::byte> traced_bytes_;
  std::vector<std::byte> plain_bytes_;
};

}  // namespace auxtrail::lockstep
