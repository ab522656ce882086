// attr.aux_action: what an event does to its AUX leader when it overflows, and how a leader starts.
//
// The field came with Linux 6.13; Debian 12's header has it as reserved. Reference: checklist A7,
// F1.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>

namespace auxtrail::event {

inline constexpr uint32_t kAuxStartPaused = 1;
inline constexpr uint32_t kAuxPause = 2;
inline constexpr uint32_t kAuxResume = 4;
inline constexpr uint32_t kAllAuxActions = kAuxStartPaused | kAuxPause | kAuxResume;

[[nodiscard]] inline uint32_t aux_action(const perf_event_attr& attr) { return attr.__reserved_3; }
inline void set_aux_action(perf_event_attr& attr, uint32_t action) { attr.__reserved_3 = action; }

}  // namespace auxtrail::event
