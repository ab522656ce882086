// Numbers inside event names and terms, as perf reads them: decimal or 0x hexadecimal.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace auxtrail::record {

// The number at the front of `text`, which is shortened by it; nothing if there is none or it does
// not fit.
inline std::optional<uint64_t> take_event_number(std::string_view& text) {
  int base = 10;
  std::string_view digits = text;
  if (digits.substr(0, 2) == "0x") {
    base = 16;
    digits.remove_prefix(2);
  }
  uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [rest, status] = std::from_chars(digits.data(), end, value, base);
  if (status != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  return value;
}

// A text that is a number as a whole.
inline std::optional<uint64_t> event_number(std::string_view text) {
  const auto value = take_event_number(text);
  return value && text.empty() ? value : std::nullopt;
}

}  // namespace auxtrail::record
