// perf_event_open: the order of its checks, exclusive PMUs (A11), and what a failure leaves behind.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

#include "perf_event/testing/fixture.h"

namespace auxtrail::perf_event::testing {
namespace {

class OpenTest : public KernelTest {};

// One call with every fault there is; they are mended one after the other, and each time the next
// is told. So each check comes before all that follow.
class OpenOrderTest : public KernelTest {
 protected:
  OpenOrderTest() : KernelTest({.max_descriptors = 11}) {}
  struct Request {
    perf_event_attr attr;
    int pid, cpu, group;
    uint64_t flags;
  };
  long open_as(Tid caller, Request request) {
    return kernel.perf_event_open(caller, &request.attr, request.pid, request.cpu, request.group,
                                  request.flags);
  }
};

TEST_F(OpenOrderTest, A1_A2_A3_A4_A5_A6_A7_A8_A9_A10_A11_EachCheckInItsPlace) {
  // The caller is nobody; another user's process, one that has exited and one of his own.
  const Tid caller = kernel.start_process(nobody);
  const Tid zombie = kernel.start_process(nobody);
  const Tid other = tid;
  extra_tasks = {caller, zombie};
  kernel.run(caller, 1);
  const auto own = [&](perf_event_attr attr, int pid, int group = -1) {
    attr.exclude_kernel = 1;
    return static_cast<int>(open_as(caller, {attr, pid, -1, group, 0}));
  };
  const int dead = own(dummy(), static_cast<int>(zombie));  // leads nobody any more
  const int leader = own(dummy(), 0);
  perf_event_attr backward = dummy();
  backward.write_backward = 1;
  const int sibling = own(backward, 0, leader);
  const int tracer_leader = own(tracer(101), 0);
  // An exclusive PMU that works for CPUs: taken from tasks.
  const int busy = opened(tracer(100), -1, 0, -1);
  std::vector<int> filler;
  while (true) {
    const int fd = own(dummy(), 0);
    if (fd < 0) break;
    filler.push_back(fd);
  }
  kernel.exit(zombie);

  Request request{tracer(100), -1, -1, 999, PERF_FLAG_FD_OUTPUT | PERF_FLAG_PID_CGROUP | 1 << 20};
  perf_event_attr& attr = request.attr;
  attr.size = 63;
  attr.__reserved_2 = 1;
  attr.freq = 1;
  attr.sample_freq = 1'000'000;
  attr.inherit = 1;
  attr.aux_output = 1;
  attr.use_clockid = 1;
  attr.clockid = 77;
  attr.exclusive = 1;
  attr.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID;
  const std::vector<std::pair<int, std::function<void()>>> faults = {
      {EINVAL, [&] { request.flags &= ~uint64_t{1 << 20}; }},  // flags
      {E2BIG, [&] { attr.size = sizeof attr; }},               // attr
      {EINVAL, [&] { attr.__reserved_2 = 0; }},
      {EACCES, [&] { attr.exclude_kernel = 1; }},                           // rights
      {EINVAL, [&] { attr.sample_freq = 1000; }},                           // rate
      {EINVAL, [&] { request.flags &= ~uint64_t{PERF_FLAG_PID_CGROUP}; }},  // cgroup
      {EMFILE, [&] { EXPECT_EQ(kernel.close(caller, filler[0]), 0); }},
      {EBADF, [&] { request.group = dead; }},  // group_fd
      {ENODEV,
       [&] {
         request.group = sibling;
         request.pid = 0x3fffff;
       }},
      {ESRCH, [&] { request.pid = static_cast<int>(zombie); }},  // task
      {EINVAL,
       [&] {
         attr.inherit = 0;  // as the leader
         request.cpu = 77;
       }},
      {EINVAL,
       [&] {
         request.cpu = -1;
         attr.type = 0x7fffffff;
       }},
      {ENOENT, [&] { attr.type = kTracer.type; }},            // event_init
      {EOPNOTSUPP, [&] { attr.aux_output = 0; }},             // aux attr
      {EBUSY, [&] { attr.type = kCounter.type; }},            // exclusive use
      {EOPNOTSUPP, [&] { attr.type = kSharedTracer.type; }},  // no interrupt
      {EINVAL,
       [&] {
         attr.use_clockid = 0;
         request.pid = static_cast<int>(other);
       }},
      {EACCES, [&] { request.pid = static_cast<int>(zombie); }},  // task's rights
      {ESRCH, [&] { request.pid = 0; }},                          // and its life
      {EINVAL, [&] { request.group = leader; }},                  // a sibling leads
      {EINVAL, [&] { attr.exclusive = 0; }},                      // group
      {EINVAL, [&] { request.flags = 0; }},                       // no such output
      {0, [] {}},
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    const size_t events = kernel.event_count();
    const long result = open_as(caller, request);
    if (faults[i].first != 0) {
      EXPECT_EQ(result, -faults[i].first) << "fault " << i;
      EXPECT_EQ(kernel.event_count(), events) << "fault " << i << " leaves an event behind";
    } else {
      EXPECT_GE(result, 0);
      kernel.close(caller, static_cast<int>(result));
    }
    faults[i].second();
  }
  kernel.close(tid, busy);
  (void)tracer_leader;
}

// The last three, which a group of its own shows better.
TEST_F(OpenTest, A9_A10_A11_TooMuchToReadThenTheAuxLinkThenTheExclusivePmu) {
  const int leader = opened(tracer(101));
  perf_event_attr large = dummy();
  large.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID | PERF_FORMAT_LOST;
  std::vector<int> siblings;
  while (siblings.size() < 681) siblings.push_back(opened(large, leader));
  const int first = opened(tracer(100));

  perf_event_attr attr = tracer(100);
  attr.read_format = large.read_format;
  attr.aux_sample_size = 4096;
  attr.aux_output = 0;
  event::set_aux_action(attr, event::kAuxPause);
  EXPECT_EQ(open(attr, leader), -E2BIG);
  kernel.close(tid, siblings[0]);
  kernel.close(tid, siblings[1]);
  const int no_aux = opened(dummy());
  EXPECT_EQ(open(attr, no_aux), -EINVAL) << "that leader cannot";
  EXPECT_EQ(open(attr, leader), -EBUSY);
  EXPECT_EQ(event(leader).refcount.load(), 1U);
  kernel.close(tid, first);
  EXPECT_GE(open(attr, leader), 0);
  EXPECT_EQ(event(leader).refcount.load(), 2U);
}

TEST_F(OpenTest, A11_TwoEventsOfAnExclusivePmuInOneContext) {
  const int first = opened(tracer(100));
  EXPECT_EQ(open(tracer(100)), -EBUSY);
  EXPECT_EQ(open(tracer(100), -1, 0), -EBUSY) << "they meet on CPU 0";
  kernel.close(tid, first);
  const int on_cpu = opened(tracer(100), -1, 0);
  EXPECT_EQ(open(tracer(100)), -EBUSY);
  EXPECT_EQ(open(tracer(100), -1, 0), -EBUSY);
  EXPECT_GE(open(tracer(100), -1, 1), 0) << "the other CPU is free";
  (void)on_cpu;
}

TEST_F(OpenTest, A11_EventsOfTasksAndOfCpusExcludeEachOther) {
  const int of_task = opened(tracer(100));
  EXPECT_EQ(open(tracer(100), -1, 0, -1), -EBUSY);
  kernel.close(tid, of_task);
  const int of_cpu = opened(tracer(100), -1, 0, -1);
  EXPECT_EQ(open(tracer(100)), -EBUSY);
  EXPECT_GE(open(tracer(100), -1, 1, -1), 0);
  EXPECT_GE(open(tracer(101)), 0) << "another PMU";
  (void)of_cpu;
}

TEST_F(OpenTest, A6_NoGroupMeansNoLeader) {
  const int leader = opened(tracer(101));
  EXPECT_GE(open(sampler(4096), leader), 0);
  EXPECT_EQ(open(sampler(4096), leader, -1, 0, PERF_FLAG_FD_NO_GROUP), -EINVAL);
  EXPECT_GE(open(sampler(0), leader, -1, 0, PERF_FLAG_FD_NO_GROUP), 0);
}

TEST_F(OpenTest, A7_OutputIntoTheLeadersTrace) {
  const int leader = opened(tracer(101));
  perf_event_attr attr = attr_of(kOutputCounter.type);
  attr.aux_output = 1;
  EXPECT_EQ(open(attr, leader), -EINVAL) << "the tracer does not take it";
  attr.config1 = 1;
  EXPECT_EQ(open(attr), -EINVAL) << "no leader";
  event::set_aux_action(attr, event::kAuxResume);
  EXPECT_EQ(open(attr, leader), -EOPNOTSUPP);
  event::set_aux_action(attr, 0);
  const int fd = opened(attr, leader);
  EXPECT_EQ(event(fd).aux_event, &event(leader));
  attr.type = kCounter.type;
  EXPECT_EQ(open(attr, leader), -EOPNOTSUPP);
}

TEST_F(OpenTest, A12_ClosingTheLeaderFirst) {
  const int leader = opened(tracer(101));
  const int first = opened(sampler(64), leader);
  const int second = opened(sampler(64), leader);
  EXPECT_EQ(event(leader).refcount.load(), 3U);
  kernel.close(tid, leader);
  for (const int fd : {first, second}) {
    EXPECT_EQ(event(fd).aux_event, nullptr);
    EXPECT_EQ(event(fd).group_leader, nullptr);
    EXPECT_EQ(event(fd).state, event::EventState::kError);
    uint64_t value = 0;
    EXPECT_EQ(kernel.read(tid, fd, &value, sizeof value), 0) << "end of file";
  }
  // Enabled again it counts, and its samples have no AUX bytes.
  const long ring = map(first, 3);
  enable(first);
  EXPECT_EQ(event(first).state, event::EventState::kActive);
  page_faults(1);
  auto read = reader(ring);
  const auto found = records(read);
  ASSERT_EQ(found.size(), 1U);
  event::testing::Fields fields(found[0]);
  (void)fields.bytes(16);
  EXPECT_EQ(fields.u64(), 0U);
}

TEST_F(OpenTest, A12_AMappingKeepsAClosedEvent) {
  const int leader = opened(tracer(101));
  const int sampling = opened(sampler(64), leader);
  const long ring = map(leader, 3);
  kernel.close(tid, leader);
  EXPECT_NE(event(sampling).aux_event, nullptr) << "its file is still open";
  EXPECT_EQ(unmap(ring, 3), 0);
  EXPECT_EQ(event(sampling).aux_event, nullptr);
}

TEST_F(OpenTest, A12_NoFailureKeepsAReference) {
  const int leader = opened(tracer(101));
  const int exclusive = opened(tracer(100));
  for (int i = 0; i < 100; ++i) {
    perf_event_attr attr = i % 2 == 0 ? tracer(100) : sampler(4096);
    attr.aux_sample_size = 4096;
    if (i % 2 != 0) event::set_aux_action(attr, event::kAuxPause | event::kAuxResume);
    EXPECT_LT(open(attr, leader), 0);
  }
  EXPECT_EQ(event(leader).refcount.load(), 1U);
  EXPECT_EQ(event(leader).aux_samplers, nullptr);
  EXPECT_EQ(kernel.event_count(), 2U);
  (void)exclusive;
}

}  // namespace
}  // namespace auxtrail::perf_event::testing
