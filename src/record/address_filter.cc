#include "record/address_filter.h"

#include <fmt/format.h>

#include <algorithm>

#include "record/event_number.h"

namespace auxtrail::record {
namespace {

constexpr char kGrammar[] = "write filter|tracestop START[/SIZE] @FILE, as in auxtrail-record(1)";

tl::unexpected<Error> bad(std::string_view text, std::string why, std::string fix = kGrammar) {
  return fail(
      {"read the filter", fmt::format("--filter '{}'", text), std::move(why), std::move(fix)});
}

// Takes the text apart from left to right.
class FilterScanner {
 public:
  explicit FilterScanner(std::string_view text) : text_(text), rest_(text) {}

  Result<std::vector<FilterText>> read_all() {
    std::vector<FilterText> filters;
    skip(" ,");
    while (!rest_.empty()) {
      AUXTRAIL_ASSIGN(FilterText filter, read_one());
      filters.push_back(std::move(filter));
      skip(" ,");
    }
    if (filters.empty()) return bad(text_, "it is empty");
    return filters;
  }

 private:
  void skip(std::string_view letters) {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(letters), rest_.size()));
  }
  std::string_view take_until(std::string_view stops) {
    const std::string_view taken = rest_.substr(0, rest_.find_first_of(stops));
    rest_.remove_prefix(taken.size());
    return taken;
  }
  bool take(char letter) {
    skip(" ");
    if (rest_.empty() || rest_.front() != letter) return false;
    rest_.remove_prefix(1);
    skip(" ");
    return true;
  }

  Result<FilterText> read_one() {
    FilterText filter;
    AUXTRAIL_ASSIGN(filter.action, read_action());
    AUXTRAIL_ASSIGN(filter.start, read_place());
    if (take('/')) {
      AUXTRAIL_ASSIGN(filter.size, read_place());
    }
    if (take('@')) filter.file = take_until(" ,");
    if (filter.file.empty()) {
      return bad(text_, "no file is named, which means the kernel, and only user space is traced",
                 "put @FILE behind it");
    }
    if (filter.start.symbol.empty() && !filter.size) {
      return bad(text_, "a region that starts at a number needs a size", "put /SIZE behind it");
    }
    return filter;
  }

  Result<FilterAction> read_action() {
    const std::string_view word = take_until(" ");
    skip(" ");
    if (word == "filter") return FilterAction::kFilter;
    if (word == "tracestop") return FilterAction::kTraceStop;
    if (word == "start" || word == "stop") {
      return bad(text_, fmt::format("Intel PT has no \"{}\" at a single address", word),
                 "use filter or tracestop with a region");
    }
    return bad(text_, fmt::format("\"{}\" is no action", word));
  }

  Result<FilterPlace> read_place() {
    FilterPlace place;
    if (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
      const auto number = take_event_number(rest_);
      if (!number) return bad(text_, "a number is too big");
      place.number = *number;
      return place;
    }
    place.symbol = take_until(" ");
    if (place.symbol.empty() || place.symbol.find_first_of("@/") == 0) {
      return bad(text_, "an address or a symbol is missing");
    }
    if (!take('#')) return place;
    if (!rest_.empty() && (rest_.front() == 'g' || rest_.front() == 'G')) {
      rest_.remove_prefix(1);
      place.index = 0;
      return place;
    }
    const auto index = take_event_number(rest_);
    if (!index || *index > INT32_MAX) return bad(text_, "behind # stands no number");
    place.index = static_cast<int>(*index);
    return place;
  }

  std::string_view text_;
  std::string_view rest_;
};

Result<uint64_t> end_of_region(const FilterText& text, const FileRange& start,
                               const FindSymbol& find_symbol) {
  if (!text.size) return start.offset + start.size_bytes;
  if (text.size->symbol.empty()) return start.offset + text.size->number;
  AUXTRAIL_ASSIGN(const FileRange last, find_symbol(text.file, *text.size));
  return last.offset + last.size_bytes;
}

}  // namespace

Result<std::vector<FilterText>> read_address_filters(std::string_view text) {
  return FilterScanner(text).read_all();
}

Result<AddressFilter> resolve_filter(const FilterText& text, const FindSymbol& find_symbol) {
  FileRange start{text.start.number, 0};
  if (!text.start.symbol.empty()) {
    AUXTRAIL_ASSIGN(start, find_symbol(text.file, text.start));
  }
  AUXTRAIL_ASSIGN(const uint64_t end, end_of_region(text, start, find_symbol));
  if (end <= start.offset) {
    return bad(fmt::format("... @{}", text.file),
               fmt::format("the region from {:#x} to {:#x} holds nothing", start.offset, end),
               "give a place and a size with code between");
  }
  return AddressFilter{text.action, text.file, start.offset, end - start.offset};
}

std::string filter_text(const AddressFilter& filter) {
  return fmt::format("{} {:#x}/{:#x}@{}",
                     filter.action == FilterAction::kFilter ? "filter" : "stop", filter.offset,
                     filter.size_bytes, filter.file);
}

std::string filters_text(const std::vector<AddressFilter>& filters) {
  std::string text;
  for (const AddressFilter& filter : filters) {
    if (!text.empty()) text += ',';
    text += filter_text(filter);
  }
  return text;
}

}  // namespace auxtrail::record
