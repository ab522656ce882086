// Random attributes for the oracle: sound ones with some things changed, of events whose records
// have sizes that can be told and whose overflows happen when they are told to.
#pragma once

#include <linux/perf_event.h>
#include <time.h>

#include <cstdint>
#include <initializer_list>
#include <random>

#include "event/aux_action.h"
#include "perf_event/testing/system.h"

namespace auxtrail::perf_event::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  uint64_t operator()() { return random_(); }
  bool one_in(unsigned n) { return random_() % n == 0; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return *(values.begin() + random_() % values.size());
  }

 private:
  std::mt19937_64 random_;
};

// An event that watches variable number `variable`, or with -1 one that never counts.
inline perf_event_attr random_attr(Random& random, int variable, bool knows_aux_action) {
  perf_event_attr attr = variable >= 0 ? breakpoint_attr(variable) : dummy_attr();
  if (variable < 0 && random.one_in(12)) {
    attr.config = random.pick<uint64_t>({12, 1000});
  } else if (variable < 0 && random.one_in(12)) {
    attr.type = 0x7fffffff;
  }
  constexpr uint64_t kFixedSizes =
      PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_READ |
      PERF_SAMPLE_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_STREAM_ID |
      PERF_SAMPLE_RAW | PERF_SAMPLE_WEIGHT | PERF_SAMPLE_DATA_SRC | PERF_SAMPLE_IDENTIFIER |
      PERF_SAMPLE_TRANSACTION | PERF_SAMPLE_AUX;
  attr.sample_period = random.pick<uint64_t>({0, 1, 1, 2, 3, 7});
  attr.sample_type = random.one_in(4) ? uint64_t{PERF_SAMPLE_IP} : random() & kFixedSizes;
  if (random.one_in(3)) attr.sample_type &= ~uint64_t{PERF_SAMPLE_PERIOD};
  attr.read_format = random() & 0x1f;
  attr.disabled = random.one_in(3) ? 1 : 0;
  attr.pinned = random.one_in(12) ? 1 : 0;
  attr.exclusive = random.one_in(12) ? 1 : 0;
  attr.inherit = random.one_in(12) ? 1 : 0;
  attr.sample_id_all = random() & 1;
  attr.write_backward = random.one_in(5) ? 1 : 0;
  attr.exclude_user = random.one_in(20) ? 1 : 0;
  attr.exclude_kernel = random.one_in(30) ? 0 : 1;
  attr.watermark = random.one_in(3) ? 1 : 0;
  attr.wakeup_events = random.pick<uint32_t>({0, 0, 1, 2, 3, 100, 4000, 1000000});
  if (random.one_in(10)) {
    attr.use_clockid = 1;
    attr.clockid = random.pick<int>({CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME,
                                     CLOCK_BOOTTIME, CLOCK_TAI, CLOCK_PROCESS_CPUTIME_ID, 77});
  }
  if (random.one_in(20)) attr.aux_sample_size = random.pick<uint32_t>({1, 4096});
  if (random.one_in(30)) attr.aux_output = 1;
  if (knows_aux_action && random.one_in(20)) {
    event::set_aux_action(attr, random() & event::kAllAuxActions);
  }
  if (random.one_in(40)) attr.sample_type |= PERF_SAMPLE_BRANCH_STACK;
  if (random.one_in(40)) attr.branch_sample_type = PERF_SAMPLE_BRANCH_ANY | PERF_SAMPLE_BRANCH_USER;
  if (random.one_in(40)) attr.sample_period = uint64_t{1} << 63;
  if (random.one_in(40)) attr.size = random.pick<uint32_t>({0, 63, 64, 112, 120, 4097});
  if (random.one_in(60)) {
    attr.sample_type |= PERF_SAMPLE_CALLCHAIN;
    attr.exclude_callchain_user = attr.exclude_callchain_kernel = 1;
    attr.sample_max_stack = 60000;  // refused: nothing else here has a size that is not fixed
  }
  if (attr.type == PERF_TYPE_BREAKPOINT && random.one_in(25))
    attr.bp_len = random.pick<uint64_t>({3, 0, 12});
  return attr;
}

}  // namespace auxtrail::perf_event::testing
