// The virtual LBR against decoding everything: real and generated traces, genuine and damaged.
#include "history/virtual_lbr.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "decode/libipt_decoder.h"
#include "decode/native_decoder.h"
#include "decode/testing/differential_case.h"
#include "decode/testing/real_traces.h"
#include "pt/psb_search.h"

namespace auxtrail::history {
namespace {

using decode::Branch;
using decode::BranchDecoder;
using decode::testing::CaseMaker;
using decode::testing::DecoderPool;
using decode::testing::DifferentialCase;

std::unique_ptr<BranchDecoder> native(const decode::TraceConfig& config) {
  return decode::make_native_decoder(config);
}
std::unique_ptr<BranchDecoder> libipt(const decode::TraceConfig& config) {
  return decode::make_libipt_decoder(config);
}

std::string text(const Branch& branch) {
  return fmt::format("{:#x} -> {:#x} {}{}", branch.from, branch.to, decode::name(branch.kind),
                     branch.ends_trace ? " (ends)" : "");
}
std::vector<std::string> to_vector(std::span<const Branch> branches) {
  std::vector<std::string> lines;
  for (const Branch& branch : branches) lines.push_back(text(branch));
  return lines;
}

struct Counts {
  uint64_t cases = 0;
  uint64_t different = 0;
  uint64_t shorter = 0;  // not all of the trace was decoded
};

// What the LBR gives, and what everything gives, for several numbers of branches.
Counts compare(DecoderPool::Factory factory, bool mutate, uint64_t cases) {
  decode::testing::CaseOptions options;
  options.seed = 21;
  options.mutate = mutate;
  CaseMaker maker(options, {});
  DecoderPool decoders(std::move(factory));
  Counts counts;
  for (uint64_t number = 0; number < cases; ++number) {
    const DifferentialCase made = maker.make(number);
    BranchDecoder& decoder = decoders.get(made);
    BranchHistory all;
    (void)decoder.decode(*made.code, made.trace.bytes, all);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{32}, size_t{1000}}) {
      VirtualLbr lbr(decoder, {.count = count});
      (void)lbr.read(*made.code, made.trace.bytes);
      ++counts.cases;
      if (lbr.decoded_from() > 0) ++counts.shorter;
      const bool same = to_vector(lbr.branches()) == to_vector(all.last(count));
      if (!same) ++counts.different;
      if (!same && !mutate) {
        ADD_FAILURE() << "case " << number << ", " << count << " branches: " << made.description;
        return counts;
      }
    }
  }
  return counts;
}

TEST(VirtualLbrTest, GivesTheNewestOfEverything) {
  const Counts counts = compare(native, false, 4000);
  EXPECT_EQ(counts.different, 0);
  EXPECT_GT(counts.shorter, counts.cases / 10) << "everything was decoded every time";
}

TEST(VirtualLbrTest, OverLibiptToo) {
  const Counts counts = compare(libipt, false, 1500);
  EXPECT_EQ(counts.different, 0);
  EXPECT_GT(counts.shorter, counts.cases / 10);
}

// Damage may lead a decoder astray long before it notices: who begins behind the damage is right
// where the other is not. That is rare.
TEST(VirtualLbrTest, DamageBeforeTheEndDoesNotMatter) {
  const Counts counts = compare(native, true, 800);
  EXPECT_LT(counts.different, counts.cases / 50);
}

// Times of branches, by either way.
void compare_times(bool tsc_too) {
  decode::testing::CaseOptions options;
  options.seed = 33;
  CaseMaker maker(options, {});
  DecoderPool decoders(native);
  uint64_t cycles = 0;
  uint64_t ticks = 0;
  for (uint64_t number = 0; number < 4000; ++number) {
    const DifferentialCase made = maker.make(number);
    if (tsc_too && made.walk.encoder.cyc) continue;  // refines, but only when calibrated
    BranchHistory all({.times = true});
    (void)decoders.get(made).decode(*made.code, made.trace.bytes, all);
    BranchHistory plain;
    (void)decoders.get(made).decode(*made.code, made.trace.bytes, plain);
    ASSERT_EQ(to_vector(plain.branches()), to_vector(all.branches())) << number;
    VirtualLbr lbr(decoders.get(made), {.count = 16, .times = true});
    (void)lbr.read(*made.code, made.trace.bytes);
    const auto entries = lbr.entries();
    const size_t first = all.branches().size() - entries.size();
    for (size_t i = 0; i < entries.size(); ++i) {
      const LbrEntry expected = lbr_entry(all, first + i);
      ASSERT_EQ(text(entries[i].branch), text(expected.branch))
          << number << ", " << made.description;
      ASSERT_EQ(entries[i].cycles.value_or(0), expected.cycles.value_or(0))
          << number << " entry " << i;
      if (entries[i].cycles.value_or(0) != 0) ++cycles;
      if (!tsc_too) continue;
      ASSERT_EQ(entries[i].tsc_ticks, expected.tsc_ticks) << number << " entry " << i;
      if (entries[i].tsc_ticks.value_or(0) != 0) ++ticks;
    }
  }
  EXPECT_GT(tsc_too ? ticks : cycles, 100);
}

TEST(VirtualLbrTest, CyclesAreThoseOfEverything) { compare_times(false); }
TEST(VirtualLbrTest, TimesAreThoseOfEverything) { compare_times(true); }

TEST(VirtualLbrTest, RealTraces) {
  const char* variable = std::getenv("AUXTRAIL_TEST_DATA");
  const auto traces = decode::testing::read_real_traces(
      variable != nullptr ? variable : AUXTRAIL_TEST_DATA_DEFAULT);
  if (traces.empty()) GTEST_SKIP() << "no real traces: set AUXTRAIL_TEST_DATA";
  for (const auto& trace : traces) {
    decode::NativeDecoder decoder(trace.config);
    for (size_t cut = 1; cut <= 50; ++cut) {
      const auto bytes = std::span(trace.bytes).first(trace.bytes.size() * cut / 50);
      BranchHistory all;
      (void)decoder.decode(trace.code, bytes, all);
      for (const size_t count : {1, 32, 5000}) {
        VirtualLbr lbr(decoder, {.count = count});
        (void)lbr.read(trace.code, bytes);
        ASSERT_EQ(to_vector(lbr.branches()), to_vector(all.last(count)))
            << trace.title << " up to " << bytes.size();
      }
    }
  }
}

TEST(VirtualLbrTest, NoPsbAndNothing) {
  decode::NativeDecoder decoder;
  VirtualLbr lbr(decoder, {.count = 4});
  const std::vector<std::byte> noise(100, std::byte{0x06});
  const auto& summary = lbr.read({}, noise);
  EXPECT_EQ(summary.errors[static_cast<size_t>(decode::ErrorCause::kNoPsb)], 1);
  EXPECT_EQ(summary.error_count(), 1);
  EXPECT_TRUE(lbr.branches().empty());
  (void)lbr.read({}, {});
  EXPECT_TRUE(lbr.entries().empty());
}

}  // namespace
}  // namespace auxtrail::history
