// The decoder on traces written by hand: every kind of event, every cause of error, damage of every
// sort.
#include "decode/branch_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <random>

#include "decode/libipt_decoder.h"
#include "decode/test_support.h"
#include "pt/packet_writer.h"

namespace auxtrail::decode {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Trace = std::vector<std::byte>;

constexpr uint64_t kStart = 0x401000;
constexpr uint64_t kConditional = 0x401001;
constexpr uint64_t kJumpBack = 0x401003;
constexpr uint64_t kCallIndirect = 0x401008;
constexpr uint64_t kReturn = 0x40100a;
constexpr uint64_t kJumpSelf = 0x40100b;
constexpr uint64_t kSyscall = 0x40100d;
constexpr uint64_t kAfterSyscall = 0x40100f;
constexpr uint64_t kInvalid = 0x401010;

const std::vector<uint8_t> kCode = {
    0x90,  // 401000 nop
    0x75,
    0x05,  // 401001 jne 401008
    0xeb,
    0xfb,  // 401003 jmp 401000
    0x90,
    0x90,
    0x90,  // 401005
    0xff,
    0xd0,  // 401008 call *%rax
    0xc3,  // 40100a ret
    0xeb,
    0xfe,  // 40100b jmp 40100b
    0x0f,
    0x05,  // 40100d syscall
    0x90,  // 40100f nop
    // 401010 more prefixes than an instruction may have
    0x66,
    0x66,
    0x66,
    0x66,
    0x66,
    0x66,
    0x66,
    0x66,
    0x66,
    0x66,
    0x66,
    0x66,
    0x66,
    0x66,
    0x66,
    0x66,
};

class CodeFile {
 public:
  explicit CodeFile(const std::vector<uint8_t>& code) {
    path_ = (std::filesystem::temp_directory_path() / "branch_decoder_test_XXXXXX").string();
    const int file = ::mkstemp(path_.data());
    EXPECT_EQ(::write(file, code.data(), code.size()), static_cast<ssize_t>(code.size()));
    ::close(file);
    map_ = {next_id_++, {{path_, 0, code.size(), kStart}}};
  }
  ~CodeFile() { std::filesystem::remove(path_); }
  [[nodiscard]] const image::CodeMap& map() const { return map_; }

 private:
  static inline uint64_t next_id_ = 1;
  std::string path_;
  image::CodeMap map_;
};

Trace trace_of(const std::function<void(pt::PacketWriter&)>& write) {
  std::vector<uint8_t> buffer(4096);
  pt::PacketWriter writer(buffer.data());
  write(writer);
  const auto bytes = std::as_bytes(std::span(buffer)).first(writer.size_bytes());
  return {bytes.begin(), bytes.end()};
}

void append(Trace& trace, std::initializer_list<int> bytes) {
  for (const int byte : bytes) trace.push_back(static_cast<std::byte>(byte));
}

void append(Trace& trace, const Trace& more) {
  trace.insert(trace.end(), more.begin(), more.end());
}

class BranchDecoderTest : public testing::Test {
 protected:
  DecodeSummary decode(const Trace& trace) {
    seen_ = {};
    return decoder_->decode(code_.map(), trace, seen_);
  }
  static uint64_t errors(const DecodeSummary& summary, ErrorCause cause) {
    return summary.errors[static_cast<size_t>(cause)];
  }

  CodeFile code_{kCode};
  std::unique_ptr<BranchDecoder> decoder_ = make_libipt_decoder();
  test::CountingConsumer seen_;
};

constexpr Branch begin(uint64_t ip) { return {0, ip, BranchKind::kTraceBegin, false}; }
constexpr Branch end(uint64_t ip) { return {ip, 0, BranchKind::kTraceEnd, true}; }

// Once around the loop, out of it, a call that returns to the loop's start; ends there.
Trace small_window() {
  return trace_of([](pt::PacketWriter& writer) {
    writer.begin(kStart, 1);
    writer.tnt(0b01, 2);  // not taken, taken
    writer.flush_tnt();
    writer.tip(kReturn);
    writer.tip(kStart);
    writer.end(kStart);
  });
}

const std::vector<Branch> kSmallWindow = {
    begin(kStart),
    {kJumpBack, kStart, BranchKind::kJump, false},
    {kConditional, kCallIndirect, BranchKind::kConditional, false},
    {kCallIndirect, kReturn, BranchKind::kCallIndirect, false},
    {kReturn, kStart, BranchKind::kReturn, false},
    end(kStart)};

TEST_F(BranchDecoderTest, WindowGivesItsBranches) {
  const auto summary = decode(small_window());
  EXPECT_EQ(seen_.branches, kSmallWindow);
  EXPECT_THAT(seen_.not_taken, ElementsAre(kConditional));
  EXPECT_EQ(summary.branches, 4);
  EXPECT_EQ(summary.not_taken, 1);
  EXPECT_EQ(summary.instructions, 7);
  EXPECT_EQ(summary.error_count(), 0);
  EXPECT_EQ(summary.first_ip, kStart);
  EXPECT_EQ(summary.final_ip, kStart);
}

TEST_F(BranchDecoderTest, NothingIsNothing) {
  const auto summary = decode({});
  EXPECT_EQ(summary.error_count(), 0);
  EXPECT_THAT(seen_.branches, IsEmpty());
  EXPECT_FALSE(summary.final_ip.has_value());
}

TEST_F(BranchDecoderTest, StubOnlyStatesThePosition) {
  const auto summary =
      decode(trace_of([](pt::PacketWriter& writer) { writer.position_only(kReturn, 5); }));
  EXPECT_THAT(seen_.branches, ElementsAre(begin(kReturn), end(kReturn)));
  EXPECT_EQ(summary.branches, 0);
  EXPECT_EQ(summary.error_count(), 0);
  EXPECT_EQ(summary.final_ip, kReturn);
}

TEST_F(BranchDecoderTest, WithoutPsbThereIsOneError) {
  const auto summary = decode(Trace(100, std::byte{0}));
  EXPECT_EQ(summary.error_count(), 1);
  EXPECT_EQ(errors(summary, ErrorCause::kNoPsb), 1);
}

TEST_F(BranchDecoderTest, SystemCallEndsTheTraceAndLeavesAGap) {
  auto trace = trace_of([](pt::PacketWriter& writer) {
    writer.begin(kSyscall, 1);
    writer.tip_pgd_no_ip();
    writer.tip_pge(kAfterSyscall);
    writer.end(kInvalid);
  });
  const auto summary = decode(trace);
  EXPECT_THAT(seen_.branches,
              ElementsAre(begin(kSyscall), Branch{kSyscall, 0, BranchKind::kSyscall, true},
                          begin(kAfterSyscall), end(kInvalid)));
  EXPECT_EQ(summary.error_count(), 0);
  ASSERT_EQ(seen_.gaps.size(), 1);
  EXPECT_EQ(seen_.gaps[0].kind, GapKind::kDisabled);
  EXPECT_EQ(seen_.gaps[0].from_ip, kSyscall);
  EXPECT_EQ(seen_.gaps[0].to_ip, kAfterSyscall);
}

TEST_F(BranchDecoderTest, InterruptIsAnAsynchronousBranch) {
  const auto summary = decode(trace_of([](pt::PacketWriter& writer) {
    writer.begin(kStart, 1);
    writer.fup(kConditional);
    writer.tip(kAfterSyscall);
    writer.end(kInvalid);
  }));
  EXPECT_THAT(
      seen_.branches,
      ElementsAre(begin(kStart), Branch{kConditional, kAfterSyscall, BranchKind::kAsync, false},
                  end(kInvalid)));
  EXPECT_EQ(summary.error_count(), 0);
}

TEST_F(BranchDecoderTest, OverflowDropsThePendingBranchAndGoesOn) {
  auto trace = trace_of([](pt::PacketWriter& writer) {
    writer.begin(kStart, 1);
    writer.tnt(1, 1);
    writer.flush_tnt();
  });
  append(trace, {0x02, 0xf3});
  append(trace, trace_of([](pt::PacketWriter& writer) {
           writer.fup(kReturn);
           writer.tip(kStart);
           writer.end(kStart);
         }));
  const auto summary = decode(trace);
  EXPECT_EQ(summary.overflows, 1);
  EXPECT_EQ(summary.error_count(), 0) << seen_.first_error_text();
  ASSERT_EQ(seen_.gaps.size(), 1);
  EXPECT_EQ(seen_.gaps[0].kind, GapKind::kOverflow);
  EXPECT_EQ(seen_.gaps[0].to_ip, kReturn);
  EXPECT_EQ(summary.final_ip, kStart);
}

TEST_F(BranchDecoderTest, BranchIntoTheUnknownIsKeptAndTheErrorSaysWhere) {
  const auto summary = decode(trace_of([](pt::PacketWriter& writer) {
    writer.begin(kCallIndirect, 1);
    writer.tip(0x7f0012345678);
    writer.end(0x7f0012345699);
  }));
  EXPECT_THAT(seen_.branches,
              ElementsAre(begin(kCallIndirect),
                          Branch{kCallIndirect, 0x7f0012345678, BranchKind::kCallIndirect, false}));
  EXPECT_EQ(errors(summary, ErrorCause::kNoMap), 1);
  ASSERT_EQ(seen_.errors.size(), 1);
  EXPECT_EQ(seen_.errors[0].ip, 0x7f0012345678);
}

TEST_F(BranchDecoderTest, DecodingGoesOnAtTheNextPsb) {
  auto trace = trace_of([](pt::PacketWriter& writer) {
    writer.begin(kStart, 1);
    writer.tip(kReturn);  // but a conditional comes first
    writer.end(kReturn);
  });
  append(trace, small_window());
  const auto summary = decode(trace);
  EXPECT_EQ(errors(summary, ErrorCause::kMismatch), 1);
  EXPECT_EQ(summary.error_count(), 1);
  const auto tail = std::span(seen_.branches).last(kSmallWindow.size());
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), kSmallWindow.begin()));
  ASSERT_EQ(seen_.gaps.size(), 1);
  EXPECT_EQ(seen_.gaps[0].kind, GapKind::kError);
}

TEST_F(BranchDecoderTest, EndlessLoopIsFound) {
  const auto start = std::chrono::steady_clock::now();
  const auto summary = decode(trace_of([](pt::PacketWriter& writer) {
    writer.begin(kJumpSelf, 1);
    writer.end(kStart);
  }));
  EXPECT_EQ(errors(summary, ErrorCause::kLoop), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST_F(BranchDecoderTest, CausesAreToldApart) {
  const auto begin_at = [](uint64_t ip) {
    return trace_of([ip](pt::PacketWriter& writer) { writer.begin(ip, 1); });
  };
  auto invalid = begin_at(kInvalid);
  append(invalid, {0b110});
  EXPECT_EQ(errors(decode(invalid), ErrorCause::kBadInstruction), 1);
  auto unknown = begin_at(kStart);
  append(unknown, {0x05, 0x05});
  EXPECT_EQ(errors(decode(unknown), ErrorCause::kBadOpcode), 1);
  auto bad_packet = begin_at(kCallIndirect);
  append(bad_packet, {0xad, 1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(errors(decode(bad_packet), ErrorCause::kBadPacket), 1);
  auto cut = begin_at(kCallIndirect);
  append(cut, {0x6d, 1, 2});
  EXPECT_EQ(errors(decode(cut), ErrorCause::kTruncated), 1);
  auto compressed = begin_at(kReturn);
  append(compressed, {0b110});
  EXPECT_EQ(errors(decode(compressed), ErrorCause::kBadReturn), 1);
}

TEST_F(BranchDecoderTest, OpenEndIsNoError) {
  auto trace = trace_of([](pt::PacketWriter& writer) {
    writer.begin(kStart, 1);
    writer.tnt(1, 1);
    writer.flush_tnt();
  });
  const auto summary = decode(trace);
  EXPECT_EQ(summary.error_count(), 0) << seen_.first_error_text();
  EXPECT_TRUE(summary.ends_open);
}

// A window cut anywhere gives the first of its branches, and no error but "truncated".
TEST_F(BranchDecoderTest, CutWindowsGiveAPrefix) {
  const auto whole = small_window();
  constexpr size_t kHeaderBytes = 32;
  for (size_t size = kHeaderBytes; size < whole.size(); ++size) {
    const auto summary = decode(Trace(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)));
    EXPECT_EQ(summary.error_count(), errors(summary, ErrorCause::kTruncated)) << size << " bytes";
    ASSERT_LE(seen_.branches.size(), kSmallWindow.size());
    EXPECT_TRUE(std::equal(seen_.branches.begin(), seen_.branches.end(), kSmallWindow.begin()))
        << size << " bytes";
  }
}

TEST_F(BranchDecoderTest, DamagedWindowsEndAndReconcile) {
  std::mt19937 random(5);
  Trace clean;
  for (int i = 0; i < 20; ++i) append(clean, small_window());
  for (int round = 0; round < 3'000; ++round) {
    auto trace = clean;
    for (int flip = 0; flip < 5; ++flip) {
      trace[random() % trace.size()] = static_cast<std::byte>(random());
    }
    trace.resize(random() % trace.size());
    const auto summary = decode(trace);
    uint64_t branches = 0;
    for (const auto& branch : seen_.branches) branches += branch.is_marker() ? 0 : 1;
    ASSERT_EQ(summary.branches, branches);
    ASSERT_EQ(summary.not_taken, seen_.not_taken.size());
    ASSERT_EQ(summary.blocks, seen_.blocks.size());
    ASSERT_EQ(summary.gaps, seen_.gaps.size());
    ASSERT_EQ(summary.error_count(), seen_.errors.size());
  }
}

// The same addresses in another process hold other code.
TEST_F(BranchDecoderTest, CodeIsTakenFromTheMapGiven) {
  auto other = kCode;
  other[1] = 0xeb;  // jmp 401008 where a conditional was
  const CodeFile other_code(other);
  const auto trace = trace_of([](pt::PacketWriter& writer) {
    writer.begin(kStart, 1);
    writer.end(kCallIndirect);
  });
  for (int round = 0; round < 2; ++round) {
    seen_ = {};
    EXPECT_EQ(decoder_->decode(other_code.map(), trace, seen_).error_count(), 0);
    EXPECT_EQ(seen_.count(BranchKind::kJump), 1);
    EXPECT_GT(decode(trace).error_count(), 0) << "the first code needs a TNT packet here";
  }
}

TEST_F(BranchDecoderTest, FileThatIsGoneIsNoMap) {
  const image::CodeMap gone{99, {{"/nowhere/gone", 0, 4096, kStart}}};
  const auto summary = decoder_->decode(gone, small_window(), seen_);
  EXPECT_EQ(errors(summary, ErrorCause::kNoMap), 1);
}

TEST(DecodeSummaryTest, SumsUp) {
  DecodeSummary total;
  DecodeSummary part;
  part.branches = 2;
  part.errors[static_cast<size_t>(ErrorCause::kLoop)] = 1;
  part.first_ip = 5;
  part.final_ip = 6;
  total += part;
  part.first_ip = 7;
  part.final_ip = 8;
  total += part;
  EXPECT_EQ(total.branches, 4);
  EXPECT_EQ(total.error_count(), 2);
  EXPECT_EQ(total.first_ip, 5);
  EXPECT_EQ(total.final_ip, 8);
}

}  // namespace
}  // namespace auxtrail::decode
