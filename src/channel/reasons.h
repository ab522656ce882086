// The words for channel::Reason and channel::Declined that people read, in the order of the enums.
#pragma once

#include <array>
#include <string_view>

#include "channel/layout.h"

namespace auxtrail::channel {

inline constexpr std::array<std::string_view, kReasonCount> kReasonNames = {
    "full",
    "syscall",
    "cold code",
    "time budget",
    "untranslatable",
    "foreign code",
    "patched code",
    "rseq",
    "fault",
    "cache full",
    "cache busy",
    "invalidated",
    "busy unit",
    "foreign thread",
    "single-stepped",
    "handlers replaced",
    "alternate stack",
    "interposed call",
    "signal",
    "trace stop",
};

inline constexpr std::array<std::string_view, kDeclinedCount> kDeclinedNames = {
    "sampled",
    "under a debugger (AUXTRAIL_WHEN_TRACED=sample samples all the same)",
    "under valgrind",
    "in a sandbox",
    "with a shadow stack",
    "under a memory limit (ulimit -v, -d)",
    "under a file size limit (ulimit -f; a smaller -m needs less)",
    "no memory for the trace unit",
};

constexpr std::string_view name(Declined declined) {
  const auto index = static_cast<size_t>(declined);
  return index < kDeclinedCount ? kDeclinedNames[index] : "unknown";
}

constexpr std::string_view name(Reason reason) {
  const auto index = static_cast<size_t>(reason);
  return index < kReasonCount ? kReasonNames[index] : "unknown";
}

}  // namespace auxtrail::channel
