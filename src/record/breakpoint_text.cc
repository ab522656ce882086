#include "record/breakpoint_text.h"

#include <fmt/format.h>
#include <linux/hw_breakpoint.h>

#include <algorithm>
#include <bit>

#include "record/event_number.h"

namespace auxtrail::record {
namespace {

constexpr std::string_view kPrefix = "mem:";
constexpr std::string_view kAccess = "rwx";
constexpr uint64_t kLongestBytes = 8;

tl::unexpected<Error> bad(std::string_view text, std::string why, std::string fix) {
  return fail({"read the breakpoint", fmt::format("-e {}", text), std::move(why), std::move(fix)});
}

tl::unexpected<Error> bad_spelling(std::string_view text) {
  return bad(text, "no breakpoint that perf's syntax knows",
             "write mem:ADDRESS[/LENGTH][:rwx][:u], e.g. mem:0x404040/8:w");
}

uint32_t access_bit(char letter) {
  return static_cast<uint32_t>(letter == 'r'   ? HW_BREAKPOINT_R
                               : letter == 'w' ? HW_BREAKPOINT_W
                                               : HW_BREAKPOINT_X);
}

// Takes the access letters at the front; 0 if one stands twice.
uint32_t take_access(std::string_view& text) {
  uint32_t access = 0;
  while (!text.empty() && kAccess.find(text.front()) != std::string_view::npos) {
    const uint32_t bit = access_bit(text.front());
    if ((access & bit) != 0) return 0;
    access |= bit;
    text.remove_prefix(1);
  }
  return access;
}

Status check_hardware(std::string_view text, const perf_event_attr& attr) {
  if (attr.bp_len > kLongestBytes || !std::has_single_bit(uint64_t{attr.bp_len})) {
    return bad(text, fmt::format("a debug register does not watch {} bytes", uint64_t{attr.bp_len}),
               "use /1, /2, /4 or /8");
  }
  if (attr.bp_type == HW_BREAKPOINT_X) {
    if (attr.bp_len == sizeof(long)) return {};
    return bad(text, "breakpoints on code have a length of 8", "leave the length out");
  }
  if (attr.bp_type != HW_BREAKPOINT_W && attr.bp_type != HW_BREAKPOINT_RW) {
    return bad(text, "debug registers watch w, rw or x", "use :rw instead of :r, and :x alone");
  }
  if (attr.bp_addr % attr.bp_len != 0) {
    return bad(text, fmt::format("the address is no multiple of {}", uint64_t{attr.bp_len}),
               "give a shorter length");
  }
  return {};
}

}  // namespace

Result<BreakpointText> read_breakpoint(std::string_view text) {
  std::string_view rest = text.substr(std::min(kPrefix.size(), text.size()));
  BreakpointText result;
  result.attr.type = PERF_TYPE_BREAKPOINT;
  const auto address = take_event_number(rest);
  if (!address) return bad_spelling(text);
  result.attr.bp_addr = *address;
  uint64_t length = 0;  // as perf: 0 means the default
  if (rest.substr(0, 1) == "/") {
    rest.remove_prefix(1);
    const auto given = take_event_number(rest);
    if (!given) return bad_spelling(text);
    length = *given;
  }
  result.attr.bp_type = HW_BREAKPOINT_RW;
  if (rest.substr(0, 1) == ":") {
    rest.remove_prefix(1);
    if (!rest.empty() && kAccess.find(rest.front()) != std::string_view::npos) {
      result.attr.bp_type = take_access(rest);
      if (result.attr.bp_type == 0) return bad_spelling(text);
      if (rest.substr(0, 1) == ":") rest.remove_prefix(1);
    }
    if (rest.find_first_of("/:") != std::string_view::npos) return bad_spelling(text);
    result.modifiers = rest;
  } else if (!rest.empty()) {
    return bad_spelling(text);
  }
  result.attr.bp_len =
      length != 0
          ? length
          : (result.attr.bp_type == HW_BREAKPOINT_X ? sizeof(long) : uint64_t{HW_BREAKPOINT_LEN_4});
  AUXTRAIL_TRY(check_hardware(text, result.attr));
  return result;
}

}  // namespace auxtrail::record
