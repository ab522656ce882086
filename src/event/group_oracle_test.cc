// The running kernel as the oracle of groups: the same events, one after the other, into its groups
// and into ours. Software events only, so any machine can answer.
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <random>
#include <vector>

#include "base/unique_fd.h"
#include "event/aux_action.h"
#include "event/group.h"
#include "event/read_format.h"
#include "event/software_pmu.h"
#include "event/test_support.h"

namespace auxtrail::event {
namespace {

constexpr uint32_t kTask = 1;

struct Target {
  int pid = 0;
  int cpu = -1;
};

UniqueFd open_event(perf_event_attr attr, Target target, int group) {
  const long fd = syscall(SYS_perf_event_open, &attr, target.pid, target.cpu, group, 0);
  return UniqueFd(static_cast<int>(fd));
}

perf_event_attr plain() {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_DUMMY;
  attr.exclude_kernel = 1;
  return attr;
}

// An event here and there.
struct Both {
  UniqueFd fd;
  std::unique_ptr<Event> event = std::make_unique<Event>();
};

class Groups {
 public:
  static constexpr size_t kNewGroup = SIZE_MAX;
  // Opens an event in the group of event number `leader`. Returns our errno and the
  // kernel's.
  std::pair<int, int> open(const perf_event_attr& attr, Target target, size_t leader) {
    Both both;
    const Both* const lead = leader != kNewGroup ? &events_[leader] : nullptr;
    both.fd = open_event(attr, target, lead != nullptr ? lead->fd.get() : -1);
    const int theirs = both.fd ? 0 : errno;
    Event* const ours_leader = lead != nullptr ? lead->event.get() : nullptr;
    const int ours = open_ours(*both.event, attr, target, ours_leader);
    if (ours == 0 && theirs == 0) {
      if (ours_leader != nullptr) join_group(*ours_leader, *both.event);
      events_.push_back(std::move(both));
    }
    return {ours, theirs};
  }
  [[nodiscard]] size_t count() const { return events_.size(); }

  void take_id(size_t index) {
    uint64_t id = 0;
    ASSERT_EQ(ioctl(events_[index].fd.get(), PERF_EVENT_IOC_ID, &id), 0);
    events_[index].event->id = id;
  }
  void expect_same_reading(size_t index) const {
    const Event& event = *events_[index].event;
    std::vector<uint64_t> ours;
    for_each_read_word(event, [&ours](uint64_t word) { ours.push_back(word); });
    std::vector<uint64_t> theirs(100);
    const ssize_t bytes = read(events_[index].fd.get(), theirs.data(), theirs.size() * 8);
    ASSERT_GT(bytes, 0);
    theirs.resize(static_cast<size_t>(bytes) / 8);
    ASSERT_EQ(theirs.size(), ours.size());
    const uint64_t format = event.attr.read_format;
    size_t times = 0;
    if ((format & PERF_FORMAT_TOTAL_TIME_ENABLED) != 0) ++times;
    if ((format & PERF_FORMAT_TOTAL_TIME_RUNNING) != 0) ++times;
    std::copy_n(theirs.begin() + 1, times, ours.begin() + 1);
    EXPECT_EQ(ours, theirs);
  }

 private:
  static int open_ours(Event& event, const perf_event_attr& attr, Target target,
                       const Event* leader) {
    const uint32_t task = target.pid == 0 ? kTask : 0;
    if (leader != nullptr) {
      if (const int error = check_leader(*leader, attr, task); error != 0) return error;
    }
    if (const int error = event.init(attr, 1, kSoftwareTrigger, nullptr); error != 0) return error;
    event.task = task;
    event.cpu = target.cpu;
    if (const int error = check_aux_attr(attr, kSoftwareTrigger); error != 0) return error;
    if (leader != nullptr) {
      if (const int error = check_group(*leader, event); error != 0) return error;
    }
    const Event& group = leader != nullptr ? *leader : event;
    if (const int error = check_read_size(group, event); error != 0) return error;
    // Without a group there is no AUX leader; a software event is none either.
    Event none;
    (void)none.init(plain(), 2, kSoftwareTrigger, nullptr);
    return need_aux_event(event)
               ? to_errno(get_aux_event(event, leader != nullptr ? &none : nullptr))
               : 0;
  }
  std::vector<Both> events_;
};

TEST(GroupOracle, RandomGroups) {
  if (!testing::perf_event_open_works()) GTEST_SKIP() << "perf_event_open is denied here";
  const bool may_watch_cpus = static_cast<bool>(open_event(plain(), {-1, 0}, -1));
  perf_event_attr paused = plain();
  set_aux_action(paused, kAuxStartPaused);
  const bool knows_aux_action = !open_event(paused, {}, -1) && errno == EOPNOTSUPP;  // Linux 6.13
  std::mt19937 random(1);
  const auto one_in = [&random](unsigned n) { return random() % n == 0; };
  size_t accepted = 0;
  size_t refused = 0;
  for (int round = 0; round < 3000; ++round) {
    Groups groups;
    for (int step = 0; step < 8; ++step) {
      perf_event_attr attr = plain();
      attr.inherit = one_in(6) ? 1 : 0;
      attr.pinned = one_in(10) ? 1 : 0;
      attr.exclusive = one_in(10) ? 1 : 0;
      attr.disabled = one_in(3) ? 1 : 0;
      attr.read_format = random() & 0x1f;
      if (one_in(5)) {
        attr.use_clockid = 1;
        attr.clockid = one_in(2) ? CLOCK_MONOTONIC : CLOCK_MONOTONIC_RAW;
      }
      if (one_in(20)) attr.aux_sample_size = 4096;
      if (one_in(20)) attr.aux_output = 1;
      if (knows_aux_action && one_in(10)) set_aux_action(attr, random() & kAllAuxActions);
      Target target{0, one_in(6) ? 0 : -1};
      if (may_watch_cpus && one_in(6)) target = {-1, 0};
      const size_t count = groups.count();
      const bool is_new = count == 0 || one_in(4);
      const auto [ours, theirs] =
          groups.open(attr, target, is_new ? Groups::kNewGroup : random() % count);
      ASSERT_EQ(ours, theirs) << "round " << round << " step " << step;
      (ours == 0 ? accepted : refused) += 1;
    }
  }
  EXPECT_GT(accepted, 5000U);
  EXPECT_GT(refused, 3000U);
}

// All words but those of time, which goes on.
TEST(GroupOracle, ReadsAsTheKernelDoes) {
  if (!testing::perf_event_open_works()) GTEST_SKIP() << "perf_event_open is denied here";
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    Groups groups;
    const size_t members = 1 + random() % 5;
    for (size_t i = 0; i < members; ++i) {
      perf_event_attr attr = plain();
      attr.read_format = random() & 0x1f;
      ASSERT_EQ(groups.open(attr, {}, i == 0 ? Groups::kNewGroup : 0), (std::pair{0, 0}));
    }
    for (size_t i = 0; i < members; ++i) groups.take_id(i);
    for (size_t i = 0; i < members; ++i) groups.expect_same_reading(i);
  }
}

TEST(GroupOracle, A9_TheSameEventIsTheFirstTooMany) {
  if (!testing::perf_event_open_works()) GTEST_SKIP() << "perf_event_open is denied here";
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < 800) GTEST_SKIP() << "too few descriptors";
  Groups groups;
  perf_event_attr attr = plain();
  attr.read_format = 0x1f;
  ASSERT_EQ(groups.open(attr, {}, Groups::kNewGroup), (std::pair{0, 0}));
  while (true) {
    const auto [ours, theirs] = groups.open(attr, {}, 0);
    ASSERT_EQ(ours, theirs) << groups.count();
    if (ours != 0) {
      EXPECT_EQ(ours, E2BIG);
      break;
    }
  }
  EXPECT_EQ(groups.count(), 681U);  // 24 bytes, and 24 for each event, up to 16 KiB
}

}  // namespace
}  // namespace auxtrail::event
