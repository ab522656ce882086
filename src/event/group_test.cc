#include "event/group.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "event/read_format.h"
#include "event/software_pmu.h"

namespace auxtrail::event {
namespace {

using ::testing::ElementsAre;

constinit const Pmu kHardware{.name = "hardware", .type = 4};
constinit const Pmu kOtherHardware{.name = "other hardware", .type = 9};

class GroupTest : public ::testing::Test {
 protected:
  Event& make(const Pmu& pmu = kSoftwareTrigger, perf_event_attr attr = {}) {
    events_.push_back(std::make_unique<Event>());
    EXPECT_EQ(events_.back()->init(attr, events_.size(), pmu, nullptr), 0);
    events_.back()->task = 1;
    return *events_.back();
  }
  std::vector<std::unique_ptr<Event>> events_;
};

TEST_F(GroupTest, A6_ADeadLeaderIsGone) {
  Event& leader = make();
  EXPECT_EQ(check_leader(leader, {}, 1), 0);
  leader.state = EventState::kError;
  EXPECT_EQ(check_leader(leader, {}, 1), 0) << "it may be enabled again";
  leader.state = EventState::kExit;
  EXPECT_EQ(check_leader(leader, {}, 1), ENODEV);
  Event& closed = make();
  close_event(closed);
  EXPECT_EQ(check_leader(closed, {}, 1), ENODEV);
}

TEST_F(GroupTest, A8_InheritanceMustAgreeForTasks) {
  perf_event_attr inherited{};
  inherited.inherit = 1;
  EXPECT_EQ(check_leader(make(), inherited, 1), EINVAL);
  EXPECT_EQ(check_leader(make(), inherited, 0), 0);
  EXPECT_EQ(check_leader(make(kSoftwareTrigger, inherited), inherited, 1), 0);
}

TEST_F(GroupTest, A8_ASiblingLeadsNobody) {
  Event& leader = make();
  Event& sibling = make();
  join_group(leader, sibling);
  EXPECT_EQ(check_group(sibling, make()), EINVAL);
  EXPECT_EQ(&group_leader_of(sibling), &leader);
  EXPECT_EQ(&group_leader_of(leader), &leader);
}

TEST_F(GroupTest, A8_ClockCpuAndTaskMustAgree) {
  Event& leader = make();
  perf_event_attr attr{};
  attr.use_clockid = 1;
  attr.clockid = 1;
  EXPECT_EQ(check_group(leader, make(kSoftwareTrigger, attr)), EINVAL);
  Event& other_cpu = make();
  other_cpu.cpu = 0;
  EXPECT_EQ(check_group(leader, other_cpu), EINVAL);
  Event& other_task = make();
  other_task.task = 2;
  EXPECT_EQ(check_group(leader, other_task), EINVAL);
  EXPECT_EQ(check_group(leader, make()), 0);
}

TEST_F(GroupTest, A8_OnlyLeadersAreExclusiveOrPinned) {
  perf_event_attr exclusive{};
  exclusive.exclusive = 1;
  perf_event_attr pinned{};
  pinned.pinned = 1;
  EXPECT_EQ(check_group(make(), make(kSoftwareTrigger, exclusive)), EINVAL);
  EXPECT_EQ(check_group(make(), make(kSoftwareTrigger, pinned)), EINVAL);
  EXPECT_EQ(check_group(make(kSoftwareTrigger, pinned), make()), 0);
}

TEST_F(GroupTest, A8_OneHardwarePmuPerGroup) {
  Event& leader = make(kHardware);
  EXPECT_EQ(check_group(leader, make(kOtherHardware)), EINVAL);
  EXPECT_EQ(check_group(leader, make(kHardware)), 0);
  EXPECT_EQ(check_group(leader, make()), 0);
  Event& soft_leader = make();
  Event& hardware = make(kHardware);
  EXPECT_EQ(check_group(soft_leader, hardware), 0);
  join_group(soft_leader, hardware);
  EXPECT_EQ(check_group(soft_leader, make(kOtherHardware)), EINVAL);
}

TEST(ReadBytes, FollowTheFormat) {
  EXPECT_EQ(read_bytes(0, 5), 8U);
  EXPECT_EQ(read_bytes(PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING, 0), 24U);
  EXPECT_EQ(read_bytes(PERF_FORMAT_ID | PERF_FORMAT_LOST, 0), 24U);
  EXPECT_EQ(read_bytes(PERF_FORMAT_GROUP, 2), 32U);
  EXPECT_EQ(read_bytes(0x1f, 2), 8U * (3 + 3 * 3));
}

TEST_F(GroupTest, A9_TooMuchToRead) {
  perf_event_attr attr{};
  attr.read_format = PERF_FORMAT_GROUP;  // (1 + n) * 8 bytes
  Event& leader = make(kSoftwareTrigger, attr);
  for (int i = 0; i < 2046; ++i) {
    Event& sibling = make();
    ASSERT_EQ(check_read_size(leader, sibling), 0) << i;
    join_group(leader, sibling);
  }
  EXPECT_EQ(check_read_size(leader, make()), E2BIG) << "the leader could not be read any more";
  Event& small_leader = make();
  for (int i = 0; i < 1000; ++i) join_group(small_leader, make());
  attr.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID | PERF_FORMAT_LOST;
  EXPECT_EQ(check_read_size(small_leader, make(kSoftwareTrigger, attr)), E2BIG);
  EXPECT_EQ(check_read_size(small_leader, make()), 0);
}

TEST_F(GroupTest, ReadsTheWholeGroupOrOneEvent) {
  Event& leader = make();
  Event& sibling = make();
  join_group(leader, sibling);
  leader.count = 10;
  sibling.count = 20;
  sibling.time_enabled = 30;
  sibling.time_running = 40;
  sibling.lost.add(5);
  const auto words = [&sibling](uint64_t format) {
    sibling.attr.read_format = format;
    std::vector<uint64_t> result;
    for_each_read_word(sibling, [&result](uint64_t word) { result.push_back(word); });
    EXPECT_EQ(result.size() * 8, read_bytes(format, 1));
    return result;
  };
  EXPECT_THAT(words(0), ElementsAre(20));
  EXPECT_THAT(words(0x1f & ~PERF_FORMAT_GROUP), ElementsAre(20, 30, 40, sibling.id, 5));
  EXPECT_THAT(words(0x1f), ElementsAre(2, 30, 40, 10, leader.id, 0, 20, sibling.id, 5));
  EXPECT_THAT(words(PERF_FORMAT_GROUP), ElementsAre(2, 10, 20));
}

TEST_F(GroupTest, SiblingsComeAndGo) {
  Event& leader = make();
  Event& first = make();
  Event& second = make();
  join_group(leader, first);
  join_group(leader, second);
  EXPECT_EQ(leader.sibling_count, 2U);
  leave_group(first);
  EXPECT_EQ(leader.sibling_count, 1U);
  EXPECT_EQ(leader.siblings, &second);
  EXPECT_EQ(&group_leader_of(first), &first);
  leave_group(leader);
  EXPECT_EQ(leader.sibling_count, 0U);
  EXPECT_EQ(&group_leader_of(second), &second);
}

}  // namespace
}  // namespace auxtrail::event
