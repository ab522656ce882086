// The letters behind an event's name, perf's modifiers, as they change its attr.
#pragma once

#include <linux/perf_event.h>

#include <string_view>

#include "base/result.h"

namespace auxtrail::record {

struct Modifiers {
  bool user = false;    // u; with none of u, k, h the event counts everywhere it can
  bool kernel = false;  // k
  bool hypervisor = false;
  bool exclude_idle = false;  // I
  bool read_group = false;    // S: its samples read the values of its group
  unsigned precise = 0;       // number of p
  [[nodiscard]] bool restricted() const { return user || kernel || hypervisor; }
};

// The letters of the event and those of its group, which add to them. u, k, h, p, S, I; H (host)
// and W (a group that may be split) mean nothing more here. Errors, naming the event by `where`: a
// letter that perf has not, one given twice, and those that the trace unit can't follow (G, D, e,
// P, b).
Result<Modifiers> read_modifiers(std::string_view own, std::string_view group,
                                 std::string_view where);

}  // namespace auxtrail::record
