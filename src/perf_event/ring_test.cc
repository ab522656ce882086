// The data ring as its reader sees it, and ioctls, read and poll on events: checklist D.
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>

#include "perf_event/testing/fixture.h"

namespace auxtrail::perf_event::testing {
namespace {

using event::EventState;

class RingTest : public KernelTest {
 protected:
  // Samples of 24 bytes: identifier and AUX size.
  static perf_event_attr small() {
    perf_event_attr attr = sampler();
    attr.sample_type = PERF_SAMPLE_IDENTIFIER;
    return attr;  // 16 bytes
  }
  uint64_t count_of(int fd) {
    uint64_t words[8] = {};
    EXPECT_GT(kernel.read(tid, fd, words, sizeof words), 0);
    return words[0];
  }
};

TEST_F(RingTest, D4_WriteBackward) {
  perf_event_attr attr = small();
  attr.write_backward = 1;
  const int fd = opened(attr);
  const long ring = map(fd, 2, PROT_READ);
  page_faults(3);
  EXPECT_EQ(page(ring).data_head, uint64_t{0} - 48);
  perf_event_header header;
  std::memcpy(&header, reinterpret_cast<std::byte*>(ring) + kPage + (page(ring).data_head & 4095),
              sizeof header);
  EXPECT_EQ(header.size, 16);
  EXPECT_EQ(open(small(), fd, -1, 0, PERF_FLAG_FD_OUTPUT), -EINVAL) << "both ways do not mix";
  EXPECT_GE(open(attr, fd, -1, 0, PERF_FLAG_FD_OUTPUT), 0);
}

TEST_F(RingTest, D5_Watermarks) {
  for (const uint32_t watermark : {0U, 100U, 4000U, 1U << 20}) {
    perf_event_attr attr = small();
    attr.watermark = 1;
    attr.wakeup_watermark = watermark;
    const int fd = opened(attr);
    const long ring = map(fd, 2, PROT_READ);
    const uint64_t effective = watermark == 0 ? 2048 : std::min(watermark, 4096U);
    uint64_t at_wakeup = 0;
    for (uint64_t written = 16; written < 20000; written += 16) {
      page_faults(1);
      const bool due = written - at_wakeup > effective;
      ASSERT_EQ(kernel.poll(tid, fd), due ? POLLIN : 0) << watermark << " at " << written;
      if (due) at_wakeup += effective;
    }
    kernel.close(tid, fd);
    unmap(ring, 2);
  }
}

TEST_F(RingTest, D6_WakeupEventsOfEachEventAreCountedByTheRing) {
  perf_event_attr attr = small();
  attr.wakeup_events = 4;
  const int fd = opened(attr);
  const long ring = map(fd, 2, PROT_READ);
  for (int i = 1; i <= 12; ++i) {
    page_faults(1);
    EXPECT_EQ(kernel.poll(tid, fd), i % 4 == 0 ? POLLIN : 0);
  }
  // Two events with one ring: its samples are counted together.
  const int second = opened(attr, -1, -1, 0);
  ASSERT_EQ(ioctl(second, PERF_EVENT_IOC_SET_OUTPUT, static_cast<uint64_t>(fd)), 0);
  page_faults(1);
  EXPECT_EQ(kernel.poll(tid, fd), 0);
  page_faults(1);
  EXPECT_EQ(kernel.poll(tid, second), POLLIN) << "either reports it";
  EXPECT_EQ(kernel.poll(tid, fd), 0) << "once";
  (void)ring;
}

TEST_F(RingTest, D7_Poll) {
  const int fd = opened(small());
  EXPECT_EQ(kernel.poll(tid, fd), POLLHUP) << "nothing can ever be read";
  EXPECT_EQ(kernel.poll(tid, 99), POLLNVAL);
  const long ring = map(fd, 2, PROT_READ);
  EXPECT_EQ(kernel.poll(tid, fd), 0);
  page_faults(200);
  EXPECT_EQ(kernel.poll(tid, fd), POLLIN);
  EXPECT_EQ(kernel.poll(tid, fd), 0) << "readable once, then cleared";
  (void)ring;
}

TEST_F(RingTest, D7_HangUpWhenTheTaskIsGone) {
  const Tid child = cloned(false);
  const int fd = opened(small(), -1, -1, static_cast<int>(child));
  const long ring = map(fd, 2, PROT_READ);
  kernel.run(child, 1);
  page_faults_of(child, 200);
  kernel.exit(child);
  EXPECT_EQ(event(fd).state, EventState::kExit);
  EXPECT_EQ(kernel.poll(tid, fd), POLLHUP);
  EXPECT_EQ(count_of(fd), 200U) << "what it counted stays";
  EXPECT_EQ(page(ring).data_head, 3200U);
  enable(fd);
  EXPECT_EQ(event(fd).state, EventState::kExit);
  EXPECT_EQ(open(small(), fd), -ENODEV);
}

TEST_F(RingTest, D7_ErrorOfAPinnedEventThatIsNotToBeHad) {
  perf_event_attr attr = tracer(101);
  attr.pinned = 1;
  const int fd = opened(attr);  // no AUX area: its unit refuses it
  EXPECT_EQ(event(fd).state, EventState::kError);
  EXPECT_EQ(kernel.poll(tid, fd), POLLERR);
  uint64_t value = 0;
  EXPECT_EQ(kernel.read(tid, fd, &value, sizeof value), 0);
}

TEST_F(RingTest, D2_LostSamplesAreToldByTheNext) {
  perf_event_attr attr = small();
  attr.read_format = PERF_FORMAT_LOST;
  const int fd = opened(attr);
  const long ring = map(fd, 2);
  page_faults(300);
  EXPECT_EQ(page(ring).data_head, 4095 / 16 * 16U);
  uint64_t words[2] = {};
  ASSERT_EQ(kernel.read(tid, fd, words, sizeof words), 16);
  EXPECT_EQ(words[0], 300U);
  EXPECT_EQ(words[1], 300U - 255);
  auto read = reader(ring);
  EXPECT_EQ(records(read).size(), 255U);
  page_faults(1);
  const auto found = records(read);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(event::testing::header_of(found[0]).type, static_cast<uint32_t>(PERF_RECORD_LOST));
  event::testing::Fields fields(found[0]);
  EXPECT_EQ(fields.u64(), event(fd).id);
  EXPECT_EQ(fields.u64(), 45U);
}

TEST_F(RingTest, D2_PausedOutput) {
  const int fd = opened(small());
  EXPECT_EQ(ioctl(fd, PERF_EVENT_IOC_PAUSE_OUTPUT, 1), -EINVAL) << "no ring";
  const long ring = map(fd, 2);
  EXPECT_EQ(ioctl(fd, PERF_EVENT_IOC_PAUSE_OUTPUT, 1), 0);
  page_faults(5);
  EXPECT_EQ(page(ring).data_head, 0U);
  EXPECT_EQ(event(fd).lost.load(), 5U);
  EXPECT_EQ(ioctl(fd, PERF_EVENT_IOC_PAUSE_OUTPUT, 0), 0);
  page_faults(1);
  EXPECT_EQ(page(ring).data_head, 24U + 16U);
}

TEST_F(RingTest, Refresh) {
  perf_event_attr attr = small();
  attr.disabled = 1;
  const int fd = opened(attr);
  const long ring = map(fd, 2);
  EXPECT_EQ(ioctl(fd, PERF_EVENT_IOC_REFRESH, 3), 0);
  page_faults(10);
  EXPECT_EQ(page(ring).data_head, 48U);
  EXPECT_EQ(count_of(fd), 3U);
  EXPECT_EQ(event(fd).state, EventState::kOff);
  enable(fd);
  page_faults(10);
  EXPECT_EQ(count_of(fd), 13U) << "enabled it goes on without a limit";
  EXPECT_EQ(ioctl(opened(dummy()), PERF_EVENT_IOC_REFRESH, 3), -EINVAL) << "it does not sample";
}

TEST_F(RingTest, Periods) {
  perf_event_attr attr = small();
  attr.sample_period = 5;
  const int fd = opened(attr);
  const long ring = map(fd, 2);
  page_faults(14);
  EXPECT_EQ(page(ring).data_head, 2 * 16U);
  uint64_t period = 0;
  const auto set = [&](uint64_t value) {
    period = value;
    return ioctl(fd, PERF_EVENT_IOC_PERIOD, reinterpret_cast<uint64_t>(&period));
  };
  EXPECT_EQ(set(0), -EINVAL);
  EXPECT_EQ(set(uint64_t{1} << 63), -EINVAL);
  EXPECT_EQ(ioctl(fd, PERF_EVENT_IOC_PERIOD, 0), -EFAULT);
  EXPECT_EQ(set(2), 0);
  page_faults(1);
  EXPECT_EQ(page(ring).data_head, 3 * 16U) << "the running period is over";
  EXPECT_EQ(event(fd).attr.sample_period, 2U);
}

TEST_F(RingTest, GroupsAreEnabledAsAWhole) {
  perf_event_attr attr = small();
  attr.disabled = 1;
  const int leader = opened(attr);
  const int first = opened(small(), leader);
  const int second = opened(attr, leader);
  EXPECT_EQ(event(first).state, EventState::kInactive) << "its leader is off";
  page_faults(1);
  EXPECT_EQ(count_of(first), 0U);
  enable(leader);
  page_faults(1);
  EXPECT_EQ(count_of(first), 1U);
  EXPECT_EQ(count_of(second), 0U);
  EXPECT_EQ(ioctl(first, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP), 0);
  page_faults(1);
  EXPECT_EQ(count_of(second), 1U);
  EXPECT_EQ(ioctl(second, PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP), 0);
  EXPECT_EQ(count_of(leader), 0U);
  kernel.close(tid, leader);
  page_faults(1);
  EXPECT_EQ(count_of(first), 1U) << "they go on alone";
  EXPECT_EQ(count_of(second), 1U);
}

TEST_F(RingTest, ReadingGroups) {
  perf_event_attr attr = small();
  attr.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID | PERF_FORMAT_TOTAL_TIME_ENABLED |
                     PERF_FORMAT_TOTAL_TIME_RUNNING;
  const int leader = opened(attr);
  const int sibling = opened(small(), leader);
  kernel.advance(1000);
  page_faults(7);
  uint64_t words[7] = {};
  EXPECT_EQ(kernel.read(tid, leader, words, 55), -ENOSPC);
  ASSERT_EQ(kernel.read(tid, leader, words, sizeof words), 56);
  const uint64_t expected[7] = {2, 1000, 1000, 7, event(leader).id, 7, event(sibling).id};
  for (int i = 0; i < 7; ++i) EXPECT_EQ(words[i], expected[i]) << i;
  // While the thread does not run its time stands still; off the leader's CPU only running does.
  kernel.stop_running(tid);
  kernel.advance(500);
  kernel.run(tid, 1);
  kernel.advance(100);
  ASSERT_EQ(kernel.read(tid, leader, words, sizeof words), 56);
  EXPECT_EQ(words[1], 1100U);
}

TEST_F(RingTest, TheTimesOfAGroupAreItsLeaders) {
  perf_event_attr attr = small();
  attr.disabled = 1;
  const int leader = opened(attr);
  attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  const int alone = opened(attr, leader);
  attr.read_format |= PERF_FORMAT_GROUP;
  const int sibling = opened(attr, leader);
  enable(alone);
  kernel.advance(10);  // the leader is off: nobody is enabled
  enable(leader);
  kernel.advance(1000);
  enable(sibling);
  kernel.advance(500);
  uint64_t words[6] = {};
  ASSERT_EQ(kernel.read(tid, sibling, words, sizeof words), 48);
  EXPECT_EQ(words[1], 1500U);
  EXPECT_EQ(words[2], 1500U);
  EXPECT_EQ(event(sibling).time_enabled, 500U) << "its own, which samples carry";
  ASSERT_EQ(kernel.read(tid, alone, words, sizeof words), 24);
  EXPECT_EQ(words[1], 1500U);
  EXPECT_EQ(words[2], 1500U);
}

TEST_F(RingTest, Redirection) {
  const int owner = opened(small());
  const int other = opened(small());
  const auto redirect = [&](int fd, int to) {
    return ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, static_cast<uint64_t>(to));
  };
  EXPECT_EQ(redirect(other, owner), -EINVAL) << "no buffer there";
  const long ring = map(owner, 2, PROT_READ);
  EXPECT_EQ(redirect(other, other), -EINVAL);
  EXPECT_EQ(redirect(other, 99), -EBADF);
  EXPECT_EQ(redirect(owner, other), -EINVAL) << "its buffer is mapped";
  EXPECT_EQ(redirect(other, owner), 0);
  page_faults(1);
  EXPECT_EQ(page(ring).data_head, 32U);
  EXPECT_EQ(map(other, 2, PROT_READ), -EBUSY) << "that is another event's buffer";
  EXPECT_EQ(map(other, 3, PROT_READ), -EINVAL);
  EXPECT_EQ(redirect(opened(small(), -1, 0), owner), -EINVAL) << "another CPU";
  perf_event_attr clock = small();
  clock.use_clockid = 1;
  clock.clockid = CLOCK_MONOTONIC;
  EXPECT_EQ(redirect(opened(clock), owner), -EINVAL) << "another clock";
  EXPECT_EQ(redirect(opened(tracer(101)), owner), 0);
  // When the last mapping goes, everybody lets go of the buffer.
  EXPECT_EQ(unmap(ring, 2), 0);
  EXPECT_EQ(event(other).buffer, nullptr);
  EXPECT_EQ(kernel.poll(tid, other), POLLHUP);
}

TEST_F(RingTest, RedirectionOfTwoAuxPmus) {
  const int owner = opened(tracer(101));
  const long ring = map(owner, 2);
  const int other = opened(tracer(kStreamer.type));
  EXPECT_EQ(ioctl(other, PERF_EVENT_IOC_SET_OUTPUT, static_cast<uint64_t>(owner)), -EINVAL);
  (void)ring;
}

TEST_F(RingTest, WhatIsNoRequest) {
  const int fd = opened(small());
  EXPECT_EQ(ioctl(fd, _IO('$', 77)), -ENOTTY);
  perf_event_attr attr = small();
  const auto modify = [&] {
    return ioctl(fd, PERF_EVENT_IOC_MODIFY_ATTRIBUTES, reinterpret_cast<uint64_t>(&attr));
  };
  EXPECT_EQ(modify(), -EOPNOTSUPP);
  attr.type = PERF_TYPE_BREAKPOINT;
  EXPECT_EQ(modify(), -EINVAL);
  attr.size = 63;
  EXPECT_EQ(modify(), -E2BIG);
  EXPECT_EQ(ioctl(99, PERF_EVENT_IOC_ENABLE), -EBADF);
  EXPECT_EQ(kernel.read(tid, 99, nullptr, 0), -EBADF);
  EXPECT_EQ(kernel.close(tid, 99), -EBADF);
  uint64_t id = 0;
  EXPECT_EQ(ioctl(fd, PERF_EVENT_IOC_ID, reinterpret_cast<uint64_t>(&id)), 0);
  EXPECT_EQ(id, event(fd).id);
}

}  // namespace
}  // namespace auxtrail::perf_event::testing
