#include "record/size_text.h"

#include <bit>
#include <charconv>
#include <string>

#include "channel/layout.h"

namespace auxtrail::record {
namespace {

// The factor of a unit letter, 0 if it is none.
uint64_t unit_factor(char unit) {
  switch (unit) {
    case 'B':
    case 'b':
      return 1;
    case 'K':
    case 'k':
      return uint64_t{1} << 10;
    case 'M':
    case 'm':
      return uint64_t{1} << 20;
    case 'G':
    case 'g':
      return uint64_t{1} << 30;
    default:
      return 0;
  }
}

struct Number {
  uint64_t value = 0;
  bool has_unit = false;
};

Result<Number> parse_number(std::string_view text, std::string_view option) {
  const auto bad = [&](std::string why) {
    return fail({"read a number", std::string(option), std::move(why),
                 "give a decimal number, optionally with B, K, M or G"});
  };
  Number number;
  const char* end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, number.value);
  if (status == std::errc::result_out_of_range) {
    return bad("\"" + std::string(text) + "\" is too big");
  }
  if (status != std::errc{}) return bad("\"" + std::string(text) + "\" is no number");
  if (rest == end) return number;
  const uint64_t factor = unit_factor(*rest);
  if (factor == 0 || rest + 1 != end) {
    return bad("\"" + std::string(text) + "\" has an unknown unit");
  }
  if (number.value > UINT64_MAX / factor) return bad("\"" + std::string(text) + "\" is too big");
  number.value *= factor;
  number.has_unit = true;
  return number;
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text, std::string_view option) {
  AUXTRAIL_ASSIGN(const Number number, parse_number(text, option));
  return number.value;
}

Result<uint32_t> parse_pages(std::string_view text, std::string_view option) {
  AUXTRAIL_ASSIGN(const Number number, parse_number(text, option));
  const uint64_t bytes_per_page = number.has_unit ? channel::kPageBytes : 1;
  const uint64_t pages =
      number.value / bytes_per_page + (number.value % bytes_per_page != 0 ? 1 : 0);
  if (pages == 0 || pages > kMaxPages) {
    return fail({"size a ring", std::string(option),
                 "\"" + std::string(text) + "\" is " + std::to_string(pages) + " pages",
                 "use 1 to " + std::to_string(kMaxPages) + " pages of 4 KiB"});
  }
  return static_cast<uint32_t>(std::bit_ceil(pages));
}

}  // namespace auxtrail::record
