// Events as lines, for tests: the name, then every number that is not 0.
#pragma once

#include <fmt/format.h>

#include <string>

#include "flow/event.h"

namespace auxtrail::flow::test {

inline std::string branches_of(const Event& tnt) {
  std::string branches;
  for (int bit = tnt.small - 1; bit >= 0; --bit) {
    branches += (tnt.payload >> bit & 1) != 0 ? 'T' : 'N';
  }
  return branches;
}

inline std::string mode_text(ExecMode mode) {
  constexpr const char* kTexts[] = {"", " mode=16", " mode=32", " mode=64"};
  return kTexts[static_cast<size_t>(mode)];
}

inline std::string text(const Event& event) {
  std::string line(name(event.kind));
  if (event.kind == EventKind::kTnt) return line + " " + branches_of(event);
  const auto add = [&](const char* title, uint64_t value) {
    if (value != 0) line += fmt::format(" {}={:x}", title, value);
  };
  add("ip", event.ip);
  if (event.ip_suppressed) line += " ip=none";
  add("at", event.at);
  add("payload", event.payload);
  add("payload2", event.payload2);
  add("small", event.small);
  add("small2", event.small2);
  if (event.flag || event.flag2 || event.flag3) {
    line += fmt::format(" flags={:d}{:d}{:d}", event.flag, event.flag2, event.flag3);
  }
  line += mode_text(event.mode);
  if (event.status_update) line += " status";
  return line;
}

inline std::string time_text(const Event& event) {
  return fmt::format(" {}tsc={:x} lost={},{}", event.has_tsc ? "" : "no ", event.tsc,
                     event.lost_mtc, event.lost_cyc);
}

}  // namespace auxtrail::flow::test
