#include "record/event_modifiers.h"

#include <fmt/format.h>

namespace auxtrail::record {
namespace {

constexpr unsigned kMaxPrecise = 3;

struct Refused {
  char letter;
  const char* why;
  const char* fix;
};
constexpr Refused kRefused[] = {
    {'G', "guests of this machine can't be traced", "leave out :G"},
    {'D', "a pinned event leads a group, and here the AUX event does", "leave out :D"},
    {'e', "an exclusive event leads a group, and here the AUX event does", "leave out :e"},
    {'P', "the highest precision must be named", "use :p, :pp or :ppp"},
    {'b', "BPF counters take no samples", "leave out :b"},
};

tl::unexpected<Error> bad(std::string_view where, std::string why, std::string fix) {
  return fail(
      {"read the event's modifiers", fmt::format("-e {}", where), std::move(why), std::move(fix)});
}

Status add(char letter, Modifiers& modifiers, std::string_view where) {
  for (const Refused& refused : kRefused) {
    if (refused.letter == letter) return bad(where, refused.why, refused.fix);
  }
  switch (letter) {
    case 'u':
      modifiers.user = true;
      return {};
    case 'k':
      modifiers.kernel = true;
      return {};
    case 'h':
      modifiers.hypervisor = true;
      return {};
    case 'p':
      ++modifiers.precise;
      return {};
    case 'S':
      modifiers.read_group = true;
      return {};
    case 'I':
      modifiers.exclude_idle = true;
      return {};
    case 'H':
    case 'W':
      return {};
    default:
      return bad(where, fmt::format("no modifier \"{}\"", letter), "use u, p, S or I");
  }
}

}  // namespace

Result<Modifiers> read_modifiers(std::string_view own, std::string_view group,
                                 std::string_view where) {
  Modifiers modifiers;
  for (const std::string_view letters : {own, group}) {
    for (size_t i = 0; i < letters.size(); ++i) {
      if (letters[i] != 'p' && letters.find(letters[i], i + 1) != std::string_view::npos) {
        return bad(where, fmt::format("\"{}\" stands twice", letters[i]), "give it once");
      }
      AUXTRAIL_TRY(add(letters[i], modifiers, where));
    }
  }
  if (modifiers.precise > kMaxPrecise) {
    return bad(where, fmt::format("{} times p", modifiers.precise), "use at most :ppp");
  }
  return modifiers;
}

}  // namespace auxtrail::record
