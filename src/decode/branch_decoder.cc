// Names and sums that every decoder shares.
#include "decode/branch_decoder.h"

#include <numeric>

namespace auxtrail::decode {

std::string_view name(BranchKind kind) {
  constexpr std::array<std::string_view, static_cast<size_t>(BranchKind::kCount)> kNames = {
      "jcc",     "jmp", "call",  "jmp indirect", "call indirect", "return",
      "syscall", "far", "async", "tr strt",      "tr end"};
  return kind < BranchKind::kCount ? kNames[static_cast<size_t>(kind)] : "unknown";
}

std::string_view name(ErrorCause cause) {
  constexpr std::array<std::string_view, kErrorCauseCount> kNames = {"no PSB in the trace",
                                                                     "no code at the address",
                                                                     "invalid instruction",
                                                                     "packets and code disagree",
                                                                     "bad compressed return",
                                                                     "unknown packet",
                                                                     "bad packet",
                                                                     "truncated packet",
                                                                     "packet out of place",
                                                                     "endless loop",
                                                                     "internal decoder error"};
  return cause < ErrorCause::kCount ? kNames[static_cast<size_t>(cause)] : "unknown";
}

uint64_t DecodeSummary::error_count() const {
  return std::accumulate(errors.begin(), errors.end(), uint64_t{0});
}

DecodeSummary& DecodeSummary::operator+=(const DecodeSummary& other) {
  bytes += other.bytes;
  instructions += other.instructions;
  blocks += other.blocks;
  branches += other.branches;
  not_taken += other.not_taken;
  gaps += other.gaps;
  overflows += other.overflows;
  for (size_t i = 0; i < errors.size(); ++i) errors[i] += other.errors[i];
  if (!first_ip) first_ip = other.first_ip;
  if (other.final_ip) {
    final_ip = other.final_ip;
    ends_open = other.ends_open;
  }
  return *this;
}

DecodeSummary& DecodeSummary::operator-=(const DecodeSummary& other) {
  bytes -= other.bytes;
  instructions -= other.instructions;
  blocks -= other.blocks;
  branches -= other.branches;
  not_taken -= other.not_taken;
  gaps -= other.gaps;
  overflows -= other.overflows;
  for (size_t i = 0; i < errors.size(); ++i) errors[i] -= other.errors[i];
  return *this;
}

}  // namespace auxtrail::decode
