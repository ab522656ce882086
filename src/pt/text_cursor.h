// Text and numbers put one behind the other into memory that is known to suffice: for the texts of
// packets, where fmt's generality is most of the time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace auxtrail::pt {

class TextCursor {
 public:
  explicit TextCursor(char* at) : at_(at) {}

  TextCursor& put(char letter) {
    *at_++ = letter;
    return *this;
  }
  TextCursor& put(std::string_view text) {
    std::memcpy(at_, text.data(), text.size());
    at_ += text.size();
    return *this;
  }
  // With at least `digits` digits.
  TextCursor& hex_digits(uint64_t value, int digits) {
    const int count = std::max(digits, (static_cast<int>(std::bit_width(value)) + 3) / 4);
    for (int i = count - 1; i >= 0; --i, value >>= 4) at_[i] = "0123456789abcdef"[value & 15];
    at_ += count;
    return *this;
  }
  TextCursor& hex(uint64_t value, int digits = 1) { return put("0x").hex_digits(value, digits); }
  TextCursor& decimal(uint64_t value) {
    char* const begin = at_;
    do {
      *at_++ = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    std::reverse(begin, at_);
    return *this;
  }

  [[nodiscard]] char* end() const { return at_; }

 private:
  char* at_;
};

}  // namespace auxtrail::pt
