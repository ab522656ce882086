// Mutation: what a self-test falsifies, to see that the comparison notices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace auxtrail::lockstep {

enum class Mutation : uint8_t {
  kNone,
  kOutcome,     // one bit of a TNT packet
  kTransfer,    // one decoded branch missing
  kTarget,      // one decoded branch leads elsewhere
  kFinalIp,     // the history ends one branch early
  kRegister,    // one bit of rbx
  kFlags,       // the carry flag
  kVector,      // one bit of xmm3
  kSignalMask,  // one more signal blocked
  kMemory,      // one byte on the stack
  kSampleIp,    // a sample's address
  // In continuous trace only:
  kFirstIp,        // tracing begins elsewhere
  kSampleAux,      // one bit of a sample's packets
  kSampleHistory,  // an older branch of the trace, which a sample has as well
  kCallArgument,   // a register at a system call
  kCount
};
inline constexpr auto kWindowMutations = static_cast<size_t>(Mutation::kFirstIp);
inline constexpr auto kAllMutations = static_cast<size_t>(Mutation::kCount);

const char* Name(Mutation mutation);

// Flips the newest outcome of the last TNT packet but `skip`; false if there is none.
bool FlipOutcome(std::span<std::byte> aux, size_t skip = 0);

}  // namespace auxtrail::lockstep
