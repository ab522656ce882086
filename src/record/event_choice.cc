#include "record/event_choice.h"

#include <linux/hw_breakpoint.h>

#include <charconv>
#include <optional>
#include <vector>

#include "abi/attr.h"

namespace auxtrail::record {
namespace {

constexpr std::string_view kBreakpointPrefix = "mem:";

// Software events whose place is always inside the kernel: restricted to user space, they never
// fire.
bool happens_in_kernel_only(const perf_event_attr& attr) {
  if (attr.type != PERF_TYPE_SOFTWARE) return false;
  switch (attr.config) {
    case PERF_COUNT_SW_CONTEXT_SWITCHES:
    case PERF_COUNT_SW_CPU_MIGRATIONS:
    case PERF_COUNT_SW_CGROUP_SWITCHES:
    case PERF_COUNT_SW_DUMMY:
    case PERF_COUNT_SW_BPF_OUTPUT:
      return true;
    default:
      return false;
  }
}

std::string known_names() {
  std::string text;
  for (const std::string_view name : abi::generic_event_names()) {
    const auto attr = abi::find_event(name);
    if (attr && happens_in_kernel_only(*attr)) continue;
    text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

tl::unexpected<Error> bad_event(std::string_view text, std::string why, std::string fix) {
  return fail({"choose the event", "-e " + std::string(text), std::move(why), std::move(fix)});
}

std::optional<uint64_t> take_number(std::string_view& text) {
  int base = 10;
  if (text.substr(0, 2) == "0x") {
    base = 16;
    text.remove_prefix(2);
  }
  uint64_t value = 0;
  const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (status != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  return value;
}

// "r", "w", "x" and their combinations; 0 for anything else.
uint32_t breakpoint_type(std::string_view letters) {
  uint32_t type = 0;
  for (const char letter : letters) {
    const auto kind = letter == 'r'   ? HW_BREAKPOINT_R
                      : letter == 'w' ? HW_BREAKPOINT_W
                      : letter == 'x' ? HW_BREAKPOINT_X
                                      : HW_BREAKPOINT_EMPTY;
    const auto bit = static_cast<uint32_t>(kind);
    if (bit == 0 || (type & bit) != 0) return 0;
    type |= bit;
  }
  return type;
}

// What stands behind "mem:".
std::optional<perf_event_attr> parse_breakpoint(std::string_view text) {
  perf_event_attr attr{};
  attr.type = PERF_TYPE_BREAKPOINT;
  const auto address = take_number(text);
  if (!address) return std::nullopt;
  attr.bp_addr = *address;
  uint64_t length = 0;
  if (!text.empty() && text.front() == '/') {
    text.remove_prefix(1);
    const auto given = take_number(text);
    if (!given || *given == 0 || *given > 8) return std::nullopt;
    length = *given;
  }
  attr.bp_type = HW_BREAKPOINT_RW;
  if (!text.empty()) {
    if (text.front() != ':') return std::nullopt;
    text.remove_prefix(1);
    if (text != "u") {
      if (text.size() > 2 && text.substr(text.size() - 2) == ":u") text.remove_suffix(2);
      attr.bp_type = breakpoint_type(text);
      if (attr.bp_type == 0) return std::nullopt;
    }
  }
  // The defaults of perf: the kernel wants sizeof(long) for code.
  attr.bp_len = length != 0 ? length
                            : (attr.bp_type == HW_BREAKPOINT_X ? sizeof(long)
                                                               : uint64_t{HW_BREAKPOINT_LEN_4});
  return attr;
}

}  // namespace

Result<EventChoice> choose_event(std::string_view text) {
  const bool is_breakpoint = text.substr(0, kBreakpointPrefix.size()) == kBreakpointPrefix;
  const auto found = is_breakpoint ? parse_breakpoint(text.substr(kBreakpointPrefix.size()))
                                   : abi::find_event(text);
  if (!found && is_breakpoint) {
    return bad_event(text, "no breakpoint that perf's syntax knows",
                     "write mem:ADDRESS[/LENGTH][:rwx], e.g. mem:0x404040/8:w");
  }
  if (!found) {
    return bad_event(text, "unknown event",
                     "choose one of: " + known_names() +
                         "; or a raw event rNNN, or a breakpoint mem:ADDRESS[/LENGTH][:rwx]");
  }
  EventChoice choice;
  choice.attr = *found;
  if (choice.attr.exclude_user != 0) {
    return bad_event(text, "it leaves user space out, and the trace unit traces user space only",
                     "use the modifier :u");
  }
  if (happens_in_kernel_only(choice.attr)) {
    return bad_event(text, "it happens inside the kernel, where no branch history can be taken",
                     "use a clock, a fault or a hardware counter event");
  }
  choice.attr.size = sizeof(perf_event_attr);
  choice.attr.exclude_kernel = 1;
  choice.attr.exclude_hv = 1;
  choice.name = abi::event_name(choice.attr);
  return choice;
}

}  // namespace auxtrail::record
