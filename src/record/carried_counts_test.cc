#include "record/carried_counts.h"

#include <gmock/gmock.h>

#include <cstring>

#include "record/session_config.h"

namespace auxtrail::record {
namespace {

using ::testing::ElementsAre;

class CarriedCountsTest : public ::testing::Test {
 protected:
  CarriedCountsTest() {
    RecordOptions options;
    options.event = "{faults:u,branches:u,instructions:u,task-clock:u}:S,branches:uS";
    options.period = 1;
    auto plan = plan_session(options, {{false, 99}, 100000});
    if (plan) config_ = plan->config;
  }
  // A sample with IDENTIFIER, IP, TID, TIME, CPU, PERIOD and READ.
  static std::vector<uint64_t> sample(uint64_t id, std::vector<uint64_t> read) {
    std::vector<uint64_t> words = {0, id, 0x401000, 1, 2, 3, 4};
    words.insert(words.end(), read.begin(), read.end());
    return words;
  }
  static std::vector<uint64_t> adjusted(CarriedCounts& counts, std::vector<uint64_t> words) {
    counts.adjust(std::as_writable_bytes(std::span(words)));
    words.erase(words.begin(), words.begin() + 7);
    return words;
  }
  channel::SessionConfig config_;
};

TEST_F(CarriedCountsTest, ValuesGoOnBehindAnExec) {
  ASSERT_EQ(config_.sampler_count, 6U);
  CarriedCounts counts(config_);
  const auto first = sample(2, {4, 7, 2, 100, 3, 300, 4, 5000, 5});
  EXPECT_THAT(adjusted(counts, first), ElementsAre(4, 7, 2, 100, 3, 300, 4, 5000, 5));
  counts.executed({.insns = 333, .branches = 111});
  EXPECT_THAT(adjusted(counts, sample(2, {4, 1, 2, 10, 3, 30, 4, 6000, 5})),
              ElementsAre(4, 8, 2, 121, 3, 363, 4, 6000, 5));
  counts.executed({.insns = 1000, .branches = 1000});
  EXPECT_THAT(adjusted(counts, sample(2, {4, 1, 2, 10, 3, 30, 4, 6000, 5})),
              ElementsAre(4, 9, 2, 1121, 3, 1363, 4, 6000, 5));
  EXPECT_THAT(adjusted(counts, sample(6, {10, 6})), ElementsAre(1121, 6));
}

TEST_F(CarriedCountsTest, NonsenseIsLeftAlone) {
  CarriedCounts counts(config_);
  counts.executed({.insns = 1, .branches = 1});
  EXPECT_THAT(adjusted(counts, sample(2, {~uint64_t{0}, 1, 99, 5})),
              ElementsAre(~uint64_t{0}, 1, 99, 5));
  EXPECT_THAT(adjusted(counts, sample(99, {2, 1, 3})), ElementsAre(2, 1, 3));
}

}  // namespace
}  // namespace auxtrail::record
