#include "event/addr_filter.h"

#include <cerrno>

#include "event/event.h"

namespace auxtrail::event {
namespace {

struct Word {
  const char* at = nullptr;
  size_t size = 0;
};

bool equal(const Word& word, const char* text, size_t size) {
  if (word.size != size) return false;
  for (size_t i = 0; i < size; ++i) {
    if (word.at[i] != text[i]) return false;
  }
  return true;
}
template <size_t N>
bool equal(const Word& word, const char (&text)[N]) {
  return equal(word, text, N - 1);
}

// Words are separated by spaces, commas and line ends, as many as one likes.
struct Words {
  const char* at;
  const char* end;
  static bool separates(char c) { return c == ' ' || c == ',' || c == '\n'; }
  bool next(Word& word) {
    while (at != end && separates(*at)) ++at;
    word.at = at;
    while (at != end && !separates(*at)) ++at;
    word.size = static_cast<size_t>(at - word.at);
    return word.size != 0;
  }
};

bool read_action(const Word& word, AddrFilterAction& action) {
  if (equal(word, "filter")) {
    action = AddrFilterAction::kFilter;
  } else if (equal(word, "start")) {
    action = AddrFilterAction::kStart;
  } else if (equal(word, "stop") || equal(word, "tracestop")) {
    action = AddrFilterAction::kStop;
  } else {
    return false;
  }
  return true;
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 16;
}

// Takes a number (0x for hexadecimal, 0 for octal) off the front of `word`. 0, EINVAL or ERANGE.
int read_number(Word& word, uint64_t& value) {
  uint32_t base = 10;
  size_t at = 0;
  if (word.size > 2 && word.at[0] == '0' && (word.at[1] | 0x20) == 'x') {
    base = 16;
    at = 2;
  } else if (word.size > 1 && word.at[0] == '0') {
    base = 8;
  }
  const size_t first = at;
  bool overflow = false;
  value = 0;
  for (; at < word.size; ++at) {
    const auto digit = static_cast<uint32_t>(digit_value(word.at[at]));
    if (digit >= base) break;
    overflow = overflow || __builtin_mul_overflow(value, base, &value) ||
               __builtin_add_overflow(value, digit, &value);
  }
  if (at == first) return EINVAL;
  word.at += at;
  word.size -= at;
  return overflow ? ERANGE : 0;
}

bool take(Word& word, char c) {
  if (word.size == 0 || *word.at != c) return false;
  ++word.at;
  --word.size;
  return true;
}

// OFFSET[/SIZE][@PATH]
int read_source(Word word, AddrFilter& filter) {
  if (const int error = read_number(word, filter.offset); error != 0) return error;
  if (take(word, '/')) {
    if (const int error = read_number(word, filter.size_bytes); error != 0) return error;
  }
  if (take(word, '@')) {
    if (word.size == 0 || word.size > UINT32_MAX) return EINVAL;
    filter.path = word.at;
    filter.path_bytes = static_cast<uint32_t>(word.size);
    return 0;
  }
  return word.size == 0 ? 0 : EINVAL;
}

int check_filter(const AddrFilter& filter, const Event& event) {
  if (filter.action == AddrFilterAction::kFilter && filter.size_bytes == 0) return EINVAL;
  if (filter.path == nullptr) return event.attr.exclude_kernel != 0 ? EINVAL : 0;
  // Of a CPU's event: the same object lies elsewhere in each process.
  return event.task == 0 ? EOPNOTSUPP : 0;
}

// The part of `mapping` that the filter is about; size 0 if none.
AddrRange part_of(const AddrFilter& filter, const AddrMapping& mapping) {
  const uint64_t map_begin = mapping.file_offset;
  const uint64_t map_end = map_begin + mapping.size_bytes;
  uint64_t filter_end = 0;
  const uint64_t size = filter.size_bytes != 0 ? filter.size_bytes : 1;
  if (__builtin_add_overflow(filter.offset, size, &filter_end)) filter_end = ~uint64_t{0};
  const uint64_t begin = filter.offset > map_begin ? filter.offset : map_begin;
  const uint64_t end = filter_end < map_end ? filter_end : map_end;
  if (begin >= end) return {};
  return {mapping.start + (begin - map_begin), end - begin};
}

}  // namespace

int parse_addr_filters(const char* text, size_t text_bytes, const Event& event,
                       AddrFilters& filters) {
  filters.count = 0;
  ++filters.generation;
  Words words{text, text + text_bytes};
  Word word;
  while (words.next(word)) {
    if (filters.count == kMaxAddrFilters) return EOPNOTSUPP;
    AddrFilter filter;
    if (!read_action(word, filter.action) || !words.next(word)) return EINVAL;
    if (const int error = read_source(word, filter); error != 0) return error;
    if (const int error = check_filter(filter, event); error != 0) return error;
    const bool is_object = filter.path != nullptr;
    filters.ranges[filters.count] =
        is_object ? AddrRange{} : AddrRange{filter.offset, filter.size_bytes};
    filters.filters[filters.count++] = filter;
  }
  return 0;
}

int set_addr_filters(Event& event, AddrFilters& filters) {
  if (event.pmu == nullptr || event.pmu->addr_filters_validate == nullptr) return EINVAL;
  if (const int error = event.pmu->addr_filters_validate(event, filters); error != 0) return error;
  event.addr_filters = &filters;
  event.hw.addr_filters_generation = filters.generation - 1;
  return 0;
}

uint32_t map_addr_filters(AddrFilters& filters, const AddrMapping& mapping) {
  uint32_t changed = 0;
  for (uint32_t i = 0; i < filters.count; ++i) {
    const AddrFilter& filter = filters.filters[i];
    const Word path{filter.path, filter.path_bytes};
    if (filter.path == nullptr || !equal(path, mapping.path, mapping.path_bytes)) continue;
    const AddrRange range = part_of(filter, mapping);
    if (range.size_bytes == 0) continue;
    filters.ranges[i] = range;
    ++changed;
  }
  if (changed != 0) ++filters.generation;
  return changed;
}

void sync_addr_filters(Event& event) {
  const AddrFilters* const filters = event.addr_filters;
  if (filters == nullptr || event.pmu->addr_filters_sync == nullptr) return;
  if (event.hw.addr_filters_generation == filters->generation) return;
  event.pmu->addr_filters_sync(event);
  event.hw.addr_filters_generation = filters->generation;
}

}  // namespace auxtrail::event
