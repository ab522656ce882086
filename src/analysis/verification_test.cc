#include "analysis/verification.h"

#include <gmock/gmock.h>

#include "analysis/testing/traced_file.h"
#include "analysis/testing/verified.h"

namespace auxtrail::analysis {
namespace {

Verification verify(const std::vector<testing::TracedSample>& samples, bool mapped = true) {
  return testing::verified(testing::traced_file(samples, mapped));
}

TEST(VerificationTest, GoodSamplesPass) {
  const auto samples = testing::traced_samples(4);
  const Verification result = verify(samples);
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.samples_with_aux, 4u);
  EXPECT_EQ(result.decoded.branches, 4 * testing::kTracedTaken);
  EXPECT_EQ(result.aux_bytes, 4 * samples[0].aux.size());
  EXPECT_EQ(result.branches_quantile(0.5), testing::kTracedTaken);
  EXPECT_DOUBLE_EQ(result.mean_branches(), testing::kTracedTaken);
  EXPECT_DOUBLE_EQ(result.bits_per_branch(),
                   8.0 * static_cast<double>(samples[0].aux.size()) / testing::kTracedTaken);
}

TEST(VerificationTest, AnotherIpFails) {
  auto samples = testing::traced_samples(3);
  samples[1].ip += 1;
  const Verification result = verify(samples);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.ends_elsewhere, 1u);
  EXPECT_EQ(result.samples_with_errors, 0u);
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_EQ(result.failures[0].time_ns, samples[1].time_ns);
  EXPECT_EQ(result.failures[0].final_ip, testing::traced_code().end);
  EXPECT_FALSE(result.failures[0].error.has_value());
}

TEST(VerificationTest, ErrorsAreCountedByCause) {
  auto samples = testing::traced_samples(3);
  samples[2].aux.assign(64, std::byte{0});  // no PSB
  const Verification result = verify(samples);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.samples_with_errors, 1u);
  EXPECT_EQ(result.decoded.errors[static_cast<size_t>(decode::ErrorCause::kNoPsb)], 1u);
  ASSERT_EQ(result.failures.size(), 1u);
  ASSERT_TRUE(result.failures[0].error.has_value());
  EXPECT_EQ(result.failures[0].error->cause, decode::ErrorCause::kNoPsb);
}

TEST(VerificationTest, MissingCodeFails) {
  const Verification result = verify(testing::traced_samples(2), false);
  EXPECT_EQ(result.samples_with_errors, 2u);
  EXPECT_FALSE(result.ok());
}

TEST(VerificationTest, FailuresAreKeptUpToALimit) {
  auto samples = testing::traced_samples(Verification::kMaxFailures + 10);
  for (auto& sample : samples) sample.ip += 1;
  const Verification result = verify(samples);
  EXPECT_EQ(result.ends_elsewhere, samples.size());
  EXPECT_EQ(result.failures.size(), Verification::kMaxFailures);
}

TEST(VerificationTest, QuantilesOfADistribution) {
  Verification result;
  result.samples_with_aux = 10;
  result.branches_per_sample = {{5, 1}, {10, 4}, {20, 4}, {100, 1}};
  EXPECT_EQ(result.branches_quantile(0), 5u);
  EXPECT_EQ(result.branches_quantile(0.5), 10u);
  EXPECT_EQ(result.branches_quantile(0.9), 20u);
  EXPECT_EQ(result.branches_quantile(1), 100u);
}

TEST(VerificationTest, NothingIsNoFailure) {
  const Verification result = verify({});
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(result.bits_per_branch(), 0);
  EXPECT_EQ(result.branches_quantile(0.5), 0u);
}

TEST(FileDamageTest, ADeadRecorderIsNoDamage) {
  perfdata::Statistics statistics;
  EXPECT_EQ(file_damage(statistics), std::nullopt);
  statistics.data_size_missing = true;
  EXPECT_EQ(file_damage(statistics), std::nullopt);
  statistics.truncated_bytes = 4;
  EXPECT_NE(file_damage(statistics), std::nullopt);
}

}  // namespace
}  // namespace auxtrail::analysis
