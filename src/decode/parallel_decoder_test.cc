// Pieces are the whole: also where the flow is lost in one piece and found again by the next.
// (Undamaged traces by the thousand: tests/differential, --compare pieces.)
#include "decode/parallel_decoder.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/unique_fd.h"
#include "decode/test_support.h"
#include "pt/packet_writer.h"

namespace auxtrail::decode {
namespace {

constexpr uint64_t kLoop = 0x1000;  // jne to itself

class ParallelDecoderTest : public ::testing::Test {
 protected:
  ParallelDecoderTest() : file_(::memfd_create("code", MFD_CLOEXEC)) {
    constexpr std::array<uint8_t, 2> kCode = {0x75, 0xfe};
    EXPECT_EQ(::write(file_.get(), kCode.data(), kCode.size()), ssize_t{kCode.size()});
    code_.id = 1;
    code_.sections.push_back(
        {"/proc/self/fd/" + std::to_string(file_.get()), 0, kCode.size(), kLoop});
  }

  // PSB+ and some rounds of the loop.
  void add_piece(uint64_t tsc) {
    std::array<uint8_t, 256> buffer{};
    pt::PacketWriter writer(buffer.data());
    writer.psb_plus(kLoop, tsc);
    for (int i = 0; i < 60; ++i) writer.tnt(1, 1);
    writer.flush_tnt();
    const auto bytes = std::as_bytes(std::span(buffer).first(writer.size_bytes()));
    trace_.insert(trace_.end(), bytes.begin(), bytes.end());
  }
  void add_bytes(std::initializer_list<uint8_t> bytes) {
    for (const uint8_t byte : bytes) trace_.push_back(std::byte{byte});
  }

  void expect_pieces_are_the_whole() {
    test::CountingConsumer whole;
    const DecodeSummary expected = NativeDecoder().decode(code_, trace_, whole);
    test::CountingConsumer pieces;
    ParallelDecoder parallel({}, 2, nullptr, 1);
    const DecodeSummary summary = parallel.decode(code_, trace_, pieces);
    EXPECT_EQ(pieces.branches, whole.branches);
    EXPECT_EQ(pieces.not_taken, whole.not_taken);
    ASSERT_EQ(pieces.gaps.size(), whole.gaps.size());
    for (size_t i = 0; i < whole.gaps.size(); ++i) {
      EXPECT_EQ(pieces.gaps[i].kind, whole.gaps[i].kind);
      EXPECT_EQ(pieces.gaps[i].from_ip, whole.gaps[i].from_ip);
      EXPECT_EQ(pieces.gaps[i].to_ip, whole.gaps[i].to_ip);
      EXPECT_EQ(pieces.gaps[i].offset, whole.gaps[i].offset);
    }
    ASSERT_EQ(pieces.errors.size(), whole.errors.size());
    for (size_t i = 0; i < whole.errors.size(); ++i) {
      EXPECT_EQ(pieces.errors[i].cause, whole.errors[i].cause);
      EXPECT_EQ(pieces.errors[i].offset, whole.errors[i].offset);
    }
    EXPECT_EQ(summary.branches, expected.branches);
    EXPECT_EQ(summary.gaps, expected.gaps);
    EXPECT_EQ(summary.errors, expected.errors);
    EXPECT_EQ(summary.first_ip, expected.first_ip);
    EXPECT_EQ(summary.final_ip, expected.final_ip);
    EXPECT_EQ(summary.ends_open, expected.ends_open);
    EXPECT_EQ(summary.bytes, expected.bytes);
    EXPECT_GT(expected.branches, 100u);
  }

  UniqueFd file_;
  image::CodeMap code_;
  std::vector<std::byte> trace_;
};

TEST_F(ParallelDecoderTest, WholeTrace) {
  for (uint64_t tsc = 1; tsc <= 5; ++tsc) add_piece(tsc);
  expect_pieces_are_the_whole();
}

TEST_F(ParallelDecoderTest, TheFlowIsLostAndFoundByTheNextPiece) {
  add_piece(1);
  add_piece(2);
  add_bytes({0x02, 0xff});  // no packet
  add_piece(3);
  add_piece(4);
  expect_pieces_are_the_whole();
}

TEST_F(ParallelDecoderTest, PacketsWereLost) {
  add_piece(1);
  add_bytes({0x02, 0xf3});  // OVF, and nothing says where tracing is
  add_piece(2);
  add_piece(3);
  expect_pieces_are_the_whole();
}

}  // namespace
}  // namespace auxtrail::decode
