// PacketReader against libipt's packet decoder: same packets, same payloads, same errors at the
// same offsets, on every kind of packet that libipt's encoder writes, on damaged traces, on random
// bytes and on real traces, with and without errata.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "pt/testing/libipt_packets.h"
#include "pt/testing/random_trace.h"

namespace auxtrail::pt {
namespace {

using testing::compare;
using testing::RandomTrace;
using testing::Trace;

constexpr Errata kErrata = {.skd007 = true, .skz84 = true};

TEST(PacketsTest, ReadsEveryPacketThatLibiptWrites) {
  std::array<uint64_t, static_cast<size_t>(PacketKind::kCount)> kinds{};
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto result = compare(RandomTrace(seed).make(2'000));
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    EXPECT_EQ(result.errors, 0);
    for (size_t i = 0; i < kinds.size(); ++i) kinds[i] += result.kinds[i];
  }
  for (size_t i = 0; i < static_cast<size_t>(PacketKind::kCfe); ++i) {
    EXPECT_GT(kinds[i], 0) << name(static_cast<PacketKind>(i)) << " was never generated";
  }
}

TEST(PacketsTest, AgreesWithLibiptOnDamagedTraces) {
  uint64_t errors = 0;
  for (uint32_t seed = 100; seed < 300; ++seed) {
    RandomTrace random(seed);
    auto trace = random.make(200);
    for (int flips = 0; flips < 20; ++flips) {
      trace[random.number() % trace.size()] ^= std::byte{1} << random.number(3);
    }
    trace.resize(1 + random.number() % trace.size());
    errors += compare(trace).errors;
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(errors, 100);
}

TEST(PacketsTest, AgreesWithLibiptOnRandomBytes) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    RandomTrace random(seed);
    Trace trace(1'000);
    // Extended opcodes are rare in uniform bytes.
    for (auto& byte : trace) {
      byte = random.number(2) == 0 ? std::byte{0x02} : static_cast<std::byte>(random.number(8));
    }
    compare(trace);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(PacketsTest, AgreesWithLibiptAtEveryTruncation) {
  auto trace = RandomTrace(7).make(300);
  for (size_t cut = 0; cut < 40 && !trace.empty(); ++cut) {
    trace.pop_back();
    compare(trace);
    ASSERT_FALSE(HasFailure()) << trace.size() << " bytes";
  }
}

TEST(PacketsTest, AgreesWithLibiptOnRealTraces) {
  const char* variable = std::getenv("AUXTRAIL_TEST_DATA");
  const std::filesystem::path root = variable != nullptr ? variable : AUXTRAIL_TEST_DATA_DEFAULT;
  if (!std::filesystem::exists(root)) GTEST_SKIP() << "no traces at " << root;
  uint64_t packets = 0;
  for (const char* file :
       {"kvm_pt/Unzip/trace", "kvm_pt/foo/trace", "kvm_pt/avscript_32/failed_trace_12709_1",
        "kvm_pt/dyn_test/sample_raw_0", "perf_pt/intelpt-trace/3842849.trace",
        "perf_pt/intelpt-trace-multi-file/multi-file.trace"}) {
    std::ifstream stream(root / file, std::ios::binary);
    ASSERT_TRUE(stream) << root / file;
    const std::string content{std::istreambuf_iterator<char>(stream), {}};
    const auto bytes = std::as_bytes(std::span(content));
    const auto result = compare(Trace(bytes.begin(), bytes.end()));
    ASSERT_FALSE(HasFailure()) << file;
    packets += result.packets;
  }
  EXPECT_GT(packets, 100'000);
}

// A quarter of the packets are such that libipt answers "unknown opcode".
TEST(PacketsTest, AgreesWithLibiptAroundNewerPackets) {
  std::array<uint64_t, static_cast<size_t>(PacketKind::kCount)> kinds{};
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto result = compare(RandomTrace(seed).make_with_newer(500));
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    for (size_t i = 0; i < kinds.size(); ++i) kinds[i] += result.kinds[i];
  }
  for (const auto kind : {PacketKind::kCfe, PacketKind::kEvd, PacketKind::kBbp, PacketKind::kBip,
                          PacketKind::kBep, PacketKind::kTrig}) {
    EXPECT_GT(kinds[static_cast<size_t>(kind)], 10) << name(kind);
  }
}

// The errata change what bytes mean; the bytes are such that they often apply.
TEST(PacketsTest, AgreesWithLibiptAboutErrata) {
  uint64_t invalid = 0;
  uint64_t differences = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const Trace trace = RandomTrace(seed).make_bytes(300 + seed % 8);
    const auto with = compare(trace, kErrata);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    const auto without = compare(trace);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    constexpr auto kInvalid = static_cast<size_t>(PacketKind::kInvalid);
    invalid += with.kinds[kInvalid];
    EXPECT_EQ(without.kinds[kInvalid], 0);
    constexpr auto kOvf = static_cast<size_t>(PacketKind::kOvf);
    differences += with.kinds[kOvf] != without.kinds[kOvf] ? 1 : 0;
  }
  EXPECT_GT(invalid, 100);
  EXPECT_GT(differences, 10);
}

TEST(PacketsTest, AgreesWithLibiptAboutErrataAtEveryTruncation) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Trace trace = RandomTrace(seed).make_bytes(40);
    for (; !trace.empty(); trace.pop_back()) {
      compare(trace, kErrata);
      ASSERT_FALSE(HasFailure()) << "seed " << seed << ", " << trace.size() << " bytes";
    }
  }
}

}  // namespace
}  // namespace auxtrail::pt
