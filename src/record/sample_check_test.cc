#include "record/sample_check.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "abi/sample_layout.h"
#include "record/machine.h"
#include "record/session_config.h"
#include "record/testing/fake_unit.h"

namespace auxtrail::record {
namespace {

using testing::FakeUnit;
using Verdict = SampleCheck::Verdict;

constexpr uint64_t kStart = 1000;
constexpr uint64_t kNow = 9000;
constexpr pid_t kHostPid = 4242;
constexpr pid_t kHostTid = 4243;
constexpr uint32_t kTid = 77;

class SampleCheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto plan = plan_session({}, {{false, 99}, 100000});
    ASSERT_TRUE(plan);
    plan->config.data_pages = 2;
    plan->config.aux_pages = 1;
    ASSERT_TRUE(unit_.create_memory(plan->config));
    config_ = plan->config;
  }
  SampleCheck::Accepted check(std::vector<std::byte>& record) const {
    return SampleCheck(config_, kStart).check(record, owner_, kNow);
  }
  std::vector<std::byte> sample(uint64_t time_ns = 5000) {
    return unit_.sample(kTid, 0x401000, time_ns);
  }
  template <class T>
  static T get(const std::vector<std::byte>& record, size_t offset) {
    T value;
    std::memcpy(&value, record.data() + offset, sizeof(value));
    return value;
  }
  template <class T>
  static void set(std::vector<std::byte>& record, size_t offset, T value) {
    std::memcpy(record.data() + offset, &value, sizeof(value));
  }
  size_t offset(abi::SampleField field) const {
    return abi::sample_field_offset(config_.samplers[0].attr.sample_type, field);
  }

  FakeUnit unit_;
  channel::SessionConfig config_;
  RingOwner owner_{kHostPid, kHostTid, static_cast<uint32_t>(::getpid()), kTid};
};

TEST_F(SampleCheckTest, AcceptsAndNamesTheOwner) {
  auto record = sample();
  set<uint16_t>(record, 4, 0xffff);  // misc
  const auto accepted = check(record);
  EXPECT_EQ(accepted.verdict, Verdict::kSample);
  EXPECT_EQ(accepted.time_ns, 5000U);
  EXPECT_EQ(accepted.aux_bytes, 48U);
  EXPECT_EQ(get<uint32_t>(record, offset(abi::SampleField::kTid)), static_cast<uint32_t>(kHostPid));
  EXPECT_EQ(get<uint32_t>(record, offset(abi::SampleField::kTid) + 4),
            static_cast<uint32_t>(kHostTid));
  EXPECT_EQ(get<uint16_t>(record, 4), PERF_RECORD_MISC_USER);
}

TEST_F(SampleCheckTest, RefusesWhatIsNotTheOwners) {
  auto other_pid = sample();
  set<uint32_t>(other_pid, offset(abi::SampleField::kTid), 1);
  EXPECT_EQ(check(other_pid).verdict, Verdict::kBad);
  auto other_tid = sample();
  set<uint32_t>(other_tid, offset(abi::SampleField::kTid) + 4, kTid + 1);
  EXPECT_EQ(check(other_tid).verdict, Verdict::kBad);
  auto other_event = sample();
  set<uint64_t>(other_event, offset(abi::SampleField::kIdentifier), config_.leader_id);
  EXPECT_EQ(check(other_event).verdict, Verdict::kBad);
}

TEST_F(SampleCheckTest, RefusesTimesOutsideTheSession) {
  auto early = sample(kStart - 1);
  auto first = sample(kStart);
  auto last = sample(kNow);
  auto late = sample(kNow + 1);
  EXPECT_EQ(check(early).verdict, Verdict::kBad);
  EXPECT_EQ(check(first).verdict, Verdict::kSample);
  EXPECT_EQ(check(last).verdict, Verdict::kSample);
  EXPECT_EQ(check(late).verdict, Verdict::kBad);
}

TEST_F(SampleCheckTest, RefusesTraceWithoutAStart) {
  const size_t aux = sample().size() - 48;
  auto no_psb = sample();
  set<uint8_t>(no_psb, aux + 3, 0);
  EXPECT_EQ(check(no_psb).verdict, Verdict::kBad);
  auto no_psbend = sample();
  set<uint16_t>(no_psbend, aux + 16 + 8 + 2 + 7, 0);
  EXPECT_EQ(check(no_psbend).verdict, Verdict::kBad);
  auto aux_too_long = sample();
  set<uint64_t>(aux_too_long, aux - 8, 56);
  EXPECT_EQ(check(aux_too_long).verdict, Verdict::kBad);
  EXPECT_FALSE(has_trace_start({}));
}

TEST_F(SampleCheckTest, RefusesOtherTypesAndShortRecords) {
  for (const uint32_t type : {0U, 1U, 3U, 4U, 7U, 10U, 11U, 64U, 70U, 71U, 0xffffffffU}) {
    auto record = sample();
    set<uint32_t>(record, 0, type);
    EXPECT_EQ(check(record).verdict, Verdict::kBad) << type;
  }
  for (size_t size = 0; size + 8 <= sample().size(); ++size) {
    auto record = sample();
    record.resize(size);
    EXPECT_EQ(check(record).verdict, Verdict::kBad) << size;
  }
}

TEST_F(SampleCheckTest, LostRecords) {
  std::vector<std::byte> record(8 + 16 + 32);
  set<uint32_t>(record, 0, PERF_RECORD_LOST);
  set<uint16_t>(record, 6, static_cast<uint16_t>(record.size()));
  set<uint64_t>(record, 8, config_.samplers[0].id);
  set<uint64_t>(record, 16, uint64_t{12});
  set<uint32_t>(record, 24, static_cast<uint32_t>(::getpid()));
  set<uint32_t>(record, 28, kTid);
  set<uint64_t>(record, 32, uint64_t{5000});
  set<uint64_t>(record, 48, config_.samplers[0].id);
  auto good = record;
  const auto accepted = check(good);
  EXPECT_EQ(accepted.verdict, Verdict::kLost);
  EXPECT_EQ(accepted.lost, 12U);
  EXPECT_EQ(get<uint32_t>(good, 24), static_cast<uint32_t>(kHostPid));
  EXPECT_EQ(get<uint32_t>(good, 28), static_cast<uint32_t>(kHostTid));
  auto absurd = record;
  set<uint64_t>(absurd, 16, UINT64_MAX);
  EXPECT_EQ(check(absurd).verdict, Verdict::kBad);
}

// Whatever stands in a record, the check neither crashes nor lets another owner through.
TEST_F(SampleCheckTest, RandomDamage) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 20000; ++i) {
    auto record = sample();
    for (uint64_t n = random() % 4; n-- > 0;) {
      record[random() % record.size()] = static_cast<std::byte>(random());
    }
    record.resize(record.size() - random() % 3 * 8);
    if (check(record).verdict != Verdict::kSample) continue;
    EXPECT_EQ(get<uint32_t>(record, offset(abi::SampleField::kTid)),
              static_cast<uint32_t>(kHostPid));
  }
}

}  // namespace
}  // namespace auxtrail::record
