// What new threads and processes inherit, and how it ends.
#include <gtest/gtest.h>
#include <poll.h>

#include <cerrno>

#include "perf_event/testing/fixture.h"

namespace auxtrail::perf_event::testing {
namespace {

using event::EventState;

class InheritTest : public KernelTest {
 protected:
  static perf_event_attr inherited_attr(perf_event_attr attr) {
    attr.inherit = 1;
    return attr;
  }
  uint64_t count_of(int fd) {
    uint64_t words[8] = {};
    EXPECT_GT(kernel.read(tid, fd, words, sizeof words), 0);
    return words[0];
  }
};

TEST_F(InheritTest, CountsComeTogether) {
  const int fd = opened(inherited_attr(sampler()));
  const Tid child = cloned();
  kernel.run(child, 1);
  page_faults_of(child, 5);
  page_faults(2);
  EXPECT_EQ(count_of(fd), 7U);
  const long grandchild = kernel.clone(child, true);
  ASSERT_GT(grandchild, 0);
  extra_tasks.push_back(static_cast<Tid>(grandchild));
  kernel.run(static_cast<Tid>(grandchild), 1);
  page_faults_of(static_cast<Tid>(grandchild), 3);
  EXPECT_EQ(kernel.inherited(event(fd), static_cast<Tid>(grandchild))->parent, &event(fd))
      << "the event that was opened, not the parent's copy";
  kernel.exit(child);
  EXPECT_EQ(count_of(fd), 10U) << "what the dead have counted stays";
  EXPECT_EQ(event(fd).children.size(), 1U);
}

TEST_F(InheritTest, A8_GroupsKeepTheirShape) {
  const int leader = opened(inherited_attr(dummy()));
  const int first = opened(inherited_attr(sampler()), leader);
  const int second = opened(inherited_attr(dummy()), leader);
  const int alone = opened(dummy());
  const Tid child = cloned();
  PerfEvent& child_leader = *kernel.inherited(event(leader), child);
  EXPECT_EQ(child_leader.sibling_count, 2U);
  for (const int fd : {first, second}) {
    EXPECT_EQ(kernel.inherited(event(fd), child)->group_leader, &child_leader);
  }
  EXPECT_EQ(kernel.inherited(event(alone), child), nullptr);
}

TEST_F(InheritTest, OnlyThreads) {
  perf_event_attr attr = inherited_attr(dummy());
  attr.inherit_thread = 1;
  const int fd = opened(attr);
  EXPECT_NE(kernel.inherited(event(fd), cloned(true)), nullptr);
  EXPECT_EQ(kernel.inherited(event(fd), cloned(false)), nullptr);
}

TEST_F(InheritTest, AChildHasTheParentsState) {
  perf_event_attr attr = inherited_attr(sampler());
  attr.disabled = 1;
  const int fd = opened(attr);
  PerfEvent* child = kernel.inherited(event(fd), cloned());
  EXPECT_EQ(child->state, EventState::kOff);
  enable(fd);
  EXPECT_EQ(child->state, EventState::kInactive) << "enabling is for the children too";
  child = kernel.inherited(event(fd), cloned());
  EXPECT_EQ(child->state, EventState::kInactive) << "not what attr.disabled says";
}

TEST_F(InheritTest, A12_ClosingTheParentTakesItsChildren) {
  const int fd = opened(inherited_attr(sampler()), -1, 0);
  const Tid child = cloned();
  EXPECT_EQ(event(fd).refcount.load(), 2U);
  kernel.run(child, 1);
  kernel.close(tid, fd);
  EXPECT_EQ(kernel.event_count(), 0U);
  page_faults_of(child, 5);
}

TEST_F(InheritTest, A12_AChildsSamplerLinksToTheChildsLeader) {
  const int leader = opened(inherited_attr(tracer(101)), -1, 0);
  const int sampling = opened(inherited_attr(sampler(64)), leader, 0);
  const Tid child = cloned();
  PerfEvent& child_leader = *kernel.inherited(event(leader), child);
  PerfEvent& child_sampler = *kernel.inherited(event(sampling), child);
  EXPECT_EQ(child_sampler.aux_event, &child_leader);
  EXPECT_EQ(child_leader.refcount.load(), 2U);
  EXPECT_EQ(event(leader).refcount.load(), 3U) << "its own, its sampler's, its child's";
  kernel.exit(child);
  EXPECT_EQ(event(leader).refcount.load(), 2U);
  EXPECT_EQ(event(sampling).aux_event, &event(leader));
}

TEST_F(InheritTest, D6_AChildWritesIntoTheParentsRingAndWakesItsReader) {
  perf_event_attr attr = inherited_attr(sampler());
  attr.wakeup_events = 1;
  const int fd = opened(attr, -1, 0);
  const long ring = map(fd, 3);
  const Tid child = cloned();
  kernel.run(child, 0);
  page_faults_of(child, 1);
  EXPECT_EQ(kernel.poll(tid, fd), POLLIN);
  auto read = reader(ring);
  const auto found = records(read);
  ASSERT_EQ(found.size(), 1U);
  event::testing::Fields fields(found[0]);
  EXPECT_EQ(fields.u64(), event(fd).id) << "the parent's";
  (void)fields.u32();
  EXPECT_EQ(fields.u32(), child);
}

TEST_F(InheritTest, C3_AChildsSampleHoldsTheChildsTrace) {
  perf_event_attr attr = inherited_attr(tracer(101));
  attr.disabled = 1;
  const int leader = opened(attr, -1, 0);
  const int sampling = opened(inherited_attr(sampler(64)), leader, 0);
  const long ring = map(leader, 3);
  ASSERT_EQ(ioctl(sampling, PERF_EVENT_IOC_SET_OUTPUT, static_cast<uint64_t>(leader)), 0);
  ASSERT_GT(map_aux(leader, ring, 4, PROT_READ), 0);
  enable(leader);
  const Tid child = cloned();
  kernel.run(child, 0);
  PerfEvent& child_leader = *kernel.inherited(event(leader), child);
  ASSERT_EQ(child_leader.state, EventState::kActive);
  units.trace(child_leader, 500);
  page_faults_of(child, 1);
  auto read = reader(ring);
  const auto found = records(read);
  const auto sample = found.back();
  ASSERT_EQ(event::testing::header_of(sample).type, static_cast<uint32_t>(PERF_RECORD_SAMPLE));
  event::testing::Fields fields(sample);
  (void)fields.bytes(16);
  ASSERT_EQ(fields.u64(), 64U);
  for (uint64_t i = 0; i < 64; ++i) {
    ASSERT_EQ(fields.bytes(1)[0], Tracer::byte_at(500 - 64 + i));
  }
}

TEST_F(InheritTest, D7_HangUpComesWithTheLastChild) {
  const int fd = opened(inherited_attr(sampler()), -1, -1, static_cast<int>(cloned(false)));
  const Tid watched = extra_tasks.back();
  const long child = kernel.clone(watched, true);
  ASSERT_GT(child, 0);
  kernel.exit(watched);
  EXPECT_EQ(event(fd).state, EventState::kExit);
  EXPECT_FALSE(event(fd).children.empty());
  kernel.exit(static_cast<Tid>(child));
  EXPECT_TRUE(event(fd).children.empty());
  EXPECT_EQ(kernel.poll(tid, fd), POLLHUP);
}

TEST_F(InheritTest, AChildProcessHasTheDescriptorsAndNotTheMappings) {
  const int fd = opened(sampler());
  const long ring = map(fd, 3);
  const Tid child = cloned(false);
  kernel.close(tid, fd);
  unmap(ring, 3);
  ASSERT_NE(kernel.event_of(child, fd), nullptr) << "its descriptor holds the event";
  EXPECT_EQ(kernel.event_of(child, fd)->buffer, nullptr);
  kernel.exit(child);
  EXPECT_EQ(kernel.event_count(), 0U);
}

// A PMU that takes as many events as it likes.
int places = 0;
constexpr event::Pmu kFussy{
    .name = "fussy", .type = 200, .software_context = true, .event_init = [](event::Event&) {
      return places-- > 0 ? 0 : ENOMEM;
    }};

TEST_F(InheritTest, A12_ACloneThatFailsLeavesNothing) {
  kernel.add_pmu(kFussy);
  places = 3;
  const int leader = opened(inherited_attr(tracer(101)), -1, 0);
  const int first = opened(inherited_attr(sampler(64)), leader, 0);
  const int second = opened(inherited_attr(attr_of(kFussy.type)), leader, 0);
  for (const bool thread : {false, true}) {
    places = 0;
    const size_t events = kernel.event_count();
    EXPECT_EQ(kernel.clone(tid, thread), -ENOMEM);
    EXPECT_EQ(kernel.event_count(), events);
    for (const int fd : {leader, first, second}) {
      EXPECT_TRUE(event(fd).children.empty());
    }
    EXPECT_EQ(event(leader).refcount.load(), 2U) << "its own and its sampler's";
  }
  places = 1;
  EXPECT_NE(kernel.inherited(event(second), cloned()), nullptr);
}

TEST_F(InheritTest, A11_AnExclusivePmusChildrenCountAsUsers) {
  const int fd = opened(inherited_attr(tracer(100)));
  const Tid child = cloned();
  EXPECT_NE(kernel.inherited(event(fd), child), nullptr);
  EXPECT_EQ(open(tracer(100), -1, 0, -1), -EBUSY);
  kernel.exit(child);
  kernel.close(tid, fd);
  EXPECT_GE(open(tracer(100), -1, 0, -1), 0);
}

}  // namespace
}  // namespace auxtrail::perf_event::testing
