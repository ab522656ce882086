// What the kernel's version decides before anybody can try it.
#pragma once

namespace auxtrail::channel {

// Whether an overflow of an event with attr.sigtrap waits while SIGTRAP is blocked. Linux 5.13 to
// 5.18 kill the process instead ("signal: Deliver SIGTRAP on perf event asynchronously if blocked"
// came with 5.19), so there such an event is no trigger. `release` as in uname(2):
// "5.15.0-91-generic".
constexpr bool waits_for_blocked_sigtrap(const char* release) {
  unsigned numbers[2] = {0, 0};
  for (unsigned& number : numbers) {
    while (*release >= '0' && *release <= '9') {
      number = number * 10 + static_cast<unsigned>(*release++ - '0');
    }
    if (*release == '.') ++release;
  }
  return numbers[0] > 5 || (numbers[0] == 5 && numbers[1] >= 19);
}

static_assert(waits_for_blocked_sigtrap("6.1.0-40-amd64"));
static_assert(waits_for_blocked_sigtrap("5.19"));
static_assert(waits_for_blocked_sigtrap("10.0.1"));
static_assert(!waits_for_blocked_sigtrap("5.18.19"));
static_assert(!waits_for_blocked_sigtrap("5.15.0-91-generic"));
static_assert(!waits_for_blocked_sigtrap("4.18.0-513.el8.x86_64"));

}  // namespace auxtrail::channel
