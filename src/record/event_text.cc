#include "record/event_text.h"

#include <fmt/format.h>

#include "abi/attr.h"

namespace auxtrail::record {
namespace {

constexpr std::string_view kBreakpoint = "mem:";
constexpr std::string_view kBlanks = " \t\n";

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// Takes the text apart from left to right; after a failure error_ says what was expected where.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Result<std::vector<EventGroup>> read_list() {
    std::vector<EventGroup> groups;
    do {
      AUXTRAIL_ASSIGN(EventGroup group, read_item());
      groups.push_back(std::move(group));
    } while (take(','));
    if (at_ != text_.size()) return unexpected("a comma");
    return groups;
  }

 private:
  [[nodiscard]] tl::unexpected<Error> unexpected(std::string_view expected) const {
    const std::string found =
        at_ < text_.size() ? fmt::format("\"{}\"", text_[at_]) : std::string("the end");
    return fail({"read the event", fmt::format("-e {}", text_),
                 fmt::format("column {}: {} where {} should be", at_ + 1, found, expected),
                 "see auxtrail-record(1) for the spelling of events"});
  }

  void skip_blanks() {
    while (at_ < text_.size() && kBlanks.find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(char letter) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != letter) return false;
    ++at_;
    return true;
  }
  std::string_view take_until(std::string_view stops) {
    const size_t end = std::min(text_.find_first_of(stops, at_), text_.size());
    const std::string_view taken = text_.substr(at_, end - at_);
    at_ = end;
    return without_blanks(taken);
  }

  Result<EventGroup> read_item() {
    const size_t start = at_;
    EventGroup group;
    group.name = take_until("{,}/:");
    group.braces = take('{');
    if (!group.braces) {
      at_ = start;
      group.name.clear();
    }
    do {
      AUXTRAIL_ASSIGN(EventText event, read_event());
      group.events.push_back(std::move(event));
    } while (group.braces && take(','));
    if (!group.braces) return group;
    if (!take('}')) return unexpected("\",\" or \"}\"");
    if (take(':')) {
      group.modifiers = take_until(",");
      if (group.modifiers.empty()) return unexpected("a modifier");
    }
    return group;
  }

  Result<EventText> read_event() {
    skip_blanks();
    const size_t start = at_;
    EventText event;
    if (text_.substr(at_, kBreakpoint.size()) == kBreakpoint) {
      event.name = take_until(",}");
    } else {
      AUXTRAIL_TRY(read_plain_event(event));
    }
    event.text = without_blanks(text_.substr(start, at_ - start));
    return event;
  }

  Status read_plain_event(EventText& event) {
    event.name = take_until(",{}/:");
    if (event.name.empty()) return unexpected("the name of an event");
    if (take('/')) return read_terms(event);
    if (!take(':')) return {};
    std::string word(take_until(",{}/:"));
    if (!abi::find_event(event.name)) {
      if (word.empty()) return unexpected("the name of a tracepoint");
      event.name += ":" + word;
      if (!take(':')) return {};
      word = take_until(",{}/:");
    }
    event.modifiers = word;
    return {};
  }

  // From behind the first slash to behind the modifiers.
  Status read_terms(EventText& event) {
    event.slashes = true;
    if (!take('/')) {
      do {
        skip_blanks();
        EventTerm term{std::string(take_until("=,/")), {}};
        if (term.name.empty()) return unexpected("the name of a term");
        if (take('=')) {
          term.value = std::string(take_until(",/"));
          if (term.value->empty()) return unexpected("the term's value");
        }
        event.terms.push_back(std::move(term));
      } while (take(','));
      if (!take('/')) return unexpected("\",\" or the closing \"/\"");
    }
    event.modifiers = take_until(",{}/:");
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<std::vector<EventGroup>> read_event_text(std::string_view text) {
  return Scanner(text).read_list();
}

}  // namespace auxtrail::record
