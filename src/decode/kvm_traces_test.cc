// Real Intel PT traces of user code under KVM, decoded against memory dumps: the totals must be the
// known ones.
//
// The traces are not ours to copy; without AUXTRAIL_TEST_DATA (or ../shared/traces beside the
// repository) the tests skip. The expected figures are libipt's own, taken with another program
// (instruction decoder).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "decode/libipt_decoder.h"
#include "decode/test_support.h"

namespace auxtrail::decode {
namespace {

struct KvmTrace {
  const char* title;
  const char* trace;
  const char* pages;  // without .addr and .dump
  uint64_t filter_start;
  uint64_t filter_end;
  uint64_t tnt_bits;
  uint64_t branches;  // taken or not
  uint64_t instructions;
};

std::ostream& operator<<(std::ostream& out, const KvmTrace& trace) { return out << trace.title; }

class KvmTraces : public testing::TestWithParam<KvmTrace> {};

TEST_P(KvmTraces, TotalsAreTheKnownOnes) {
  const KvmTrace& expected = GetParam();
  const auto root = test::data_directory() / "kvm_pt";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "no traces at " << root;
  const auto code = test::page_dump(root / expected.pages);
  const auto trace = test::read_file(root / expected.trace);
  ASSERT_FALSE(code.sections.empty());

  TraceConfig config;
  config.intel_cpu = true;
  config.family = 6;
  config.model = 94;
  config.filter_start = expected.filter_start;
  config.filter_end = expected.filter_end;
  const auto decoder = make_libipt_decoder(config);
  test::CountingConsumer consumer;
  const auto summary = decoder->decode(code, trace, consumer);

  EXPECT_EQ(summary.error_count(), 0) << consumer.first_error_text();
  EXPECT_EQ(summary.instructions, expected.instructions);
  EXPECT_EQ(summary.branches + summary.not_taken, expected.branches);
  const uint64_t conditional = consumer.count(BranchKind::kConditional) + summary.not_taken;
  EXPECT_EQ(conditional, expected.tnt_bits) << "return compression is off: TNT means jcc";
}

INSTANTIATE_TEST_SUITE_P(All, KvmTraces,
                         testing::Values(KvmTrace{"Unzip", "Unzip/trace", "Unzip/data", 0x400000,
                                                  0x427000, 45'985, 46'761, 149'576},
                                         KvmTrace{"foo", "foo/trace", "foo/data", 0x7ffff7819000,
                                                  0x7ffff79ca000, 22'298, 29'225, 117'967},
                                         KvmTrace{"avscript_32", "avscript_32/failed_trace_12709_1",
                                                  "avscript_32/page_cache", 0x1000, 0x7ffffffff000,
                                                  234'320, 316'133, 1'114'194}),
                         [](const auto& trace) { return std::string(trace.param.title); });

// Fourteen pages are missing by design: errors are counted, decoding goes on and ends.
TEST(KvmTracesTest, MissingPagesAreErrorsByCause) {
  const auto root = test::data_directory() / "kvm_pt" / "dyn_test";
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "no traces at " << root;
  TraceConfig config;
  config.intel_cpu = true;
  config.family = 6;
  config.model = 94;
  config.filter_start = 0x1000;
  config.filter_end = 0x7ffffffff000;
  test::CountingConsumer consumer;
  const auto summary = make_libipt_decoder(config)->decode(
      test::page_dump(root / "page_cache"), test::read_file(root / "sample_raw_0"), consumer);
  EXPECT_EQ(summary.instructions, 870);
  EXPECT_GT(summary.errors[static_cast<size_t>(ErrorCause::kNoMap)], 0);
}

}  // namespace
}  // namespace auxtrail::decode
