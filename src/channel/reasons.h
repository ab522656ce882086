// The words for channel::Reason that people read, in the enum's order.
#pragma once

#include <array>
#include <string_view>

#include "channel/layout.h"

namespace auxtrail::channel {

inline constexpr std::array<std::string_view, kReasonCount> kReasonNames = {
    "full",           "syscall",        "cold code",      "time budget",
    "untranslatable", "foreign code",   "patched code",   "rseq",
    "fault",          "cache full",     "cache busy",     "invalidated",
    "busy unit",      "foreign thread", "single-stepped", "handlers replaced",
    "alternate stack"};

constexpr std::string_view name(Reason reason) {
  const auto index = static_cast<size_t>(reason);
  return index < kReasonCount ? kReasonNames[index] : "unknown";
}

}  // namespace auxtrail::channel
