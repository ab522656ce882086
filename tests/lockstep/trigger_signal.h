// The signals with which the kernel's perf events tell the unit of an overflow.
#pragma once

#include <signal.h>

#include <cstdint>

#include "channel/layout.h"

namespace auxtrail::lockstep {

// src/unit/signals.h: of the first sampler, and of the entry event.
inline constexpr uint64_t kTriggerCookie = 0x6c6961727400;
inline constexpr uint64_t kEntryCookie = kTriggerCookie + channel::kMaxSamplers;

siginfo_t TriggerInfo(uint64_t cookie);

}  // namespace auxtrail::lockstep
