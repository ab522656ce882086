// PacketReader on small traces by hand: addresses, padding, errata, synchronising, copies. What
// each packet is, the comparison with libipt tells (packet_libipt_test.cc).
#include "pt/packet_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pt/testing/packet_texts.h"
#include "pt/testing/random_trace.h"

namespace auxtrail::pt {
namespace {

using testing::bytes_of;
using ::testing::ElementsAre;
using testing::put_psb;
using testing::texts;
using testing::Trace;

// SDM: a compressed address replaces the low bytes of the last one; no address leaves it as it is.
TEST(PacketReaderTest, DecompressesAddresses) {
  EXPECT_THAT(texts(bytes_of({0x71, 0x00, 0x10, 0x40, 0x00, 0xff, 0x7f,     // TIP.PGE, 48 bits
                              0x2d, 0x34, 0x12,                             // TIP, 16 bits
                              0x01,                                         // TIP.PGD, none
                              0x4d, 0x78, 0x56, 0x34, 0x12,                 // TIP, 32 bits
                              0x6d, 0,    0,    0,    0,    0,    0x80})),  // TIP, sign extended
              ElementsAre("TIP.PGE 0x7fff00401000", "TIP 0x7fff00401234", "TIP.PGD no ip",
                          "TIP 0x7fff12345678", "TIP 0xffff800000000000"));
}

TEST(PacketReaderTest, TntReadsOldestBranchFirst) {
  EXPECT_THAT(texts(bytes_of({0b0001'1010, 0x02, 0xa3, 0b1101, 0, 0, 0, 0, 0})),
              ElementsAre("TNT TNT (3)", "TNT TNT (3)"));
}

TEST(PacketReaderTest, SyncsOnThePsbBehindGarbage) {
  auto trace = bytes_of({0x82, 0x02, 0x82, 0xff});
  put_psb(trace);
  PacketReader reader(trace);
  ASSERT_TRUE(reader.sync_forward());
  EXPECT_EQ(reader.offset(), 4);
  reader.seek(5);
  EXPECT_FALSE(reader.sync_forward());
  EXPECT_EQ(reader.offset(), 5);
}

// A TIP to an address that ends like a PSB does, then a PSB.
TEST(PacketReaderTest, SyncsOnThePsbBehindAPayloadLikeIt) {
  auto trace = bytes_of({0x2d, 0x02, 0x82});
  put_psb(trace);
  trace.push_back(std::byte{0x02});  // PSBEND
  trace.push_back(std::byte{0x23});
  PacketReader reader(trace);
  ASSERT_TRUE(reader.sync_forward());
  EXPECT_EQ(reader.offset(), 3);
}

TEST(PacketReaderTest, SyncsBackward) {
  Trace trace;
  put_psb(trace);
  trace.push_back(std::byte{0x06});
  put_psb(trace);
  PacketReader reader(trace);
  reader.seek(trace.size());
  ASSERT_TRUE(reader.sync_backward());
  EXPECT_EQ(reader.offset(), 17);
  ASSERT_TRUE(reader.sync_backward());
  EXPECT_EQ(reader.offset(), 0);
  EXPECT_FALSE(reader.sync_backward());
  EXPECT_EQ(reader.offset(), 0);
}

TEST(PacketReaderTest, SkipsPaddingWhenTold) {
  for (const size_t padding : {0, 1, 7, 8, 9, 15, 16, 17, 100}) {
    auto trace = Trace(padding);
    trace.push_back(std::byte{0x06});
    trace.resize(trace.size() + padding);
    PacketReader reader(trace, {}, Padding::kSkip);
    Packet packet;
    ASSERT_EQ(reader.next(packet), ReadStatus::kPacket) << padding;
    EXPECT_EQ(text(packet), "TNT T (1)");
    EXPECT_EQ(packet.offset, padding);
    EXPECT_EQ(reader.next(packet), ReadStatus::kEnd) << padding;
    EXPECT_EQ(reader.offset(), trace.size());
  }
}

// Padding is skipped up to the bytes that are no packet: the error is there.
TEST(PacketReaderTest, ErrorsBehindSkippedPaddingAreInTheirPlace) {
  for (const size_t padding : {0, 3, 40}) {
    auto trace = Trace(padding);
    trace.push_back(std::byte{0x15});
    PacketReader reader(trace, {}, Padding::kSkip);
    Packet packet;
    EXPECT_EQ(reader.next(packet), ReadStatus::kBadOpcode);
    EXPECT_EQ(reader.offset(), padding);
  }
}

TEST(PacketReaderTest, ACopyLooksAhead) {
  const auto trace = bytes_of({0x71, 0x00, 0x10, 0x40, 0x00, 0xff, 0x7f, 0x2d, 0x34, 0x12,
                               0x2d, 0x36, 0x12, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00});
  PacketReader reader(trace);
  Packet packet;
  ASSERT_EQ(reader.next(packet), ReadStatus::kPacket);
  PacketReader copy = reader;
  Packet ahead;
  ASSERT_EQ(copy.next(ahead), ReadStatus::kPacket);
  ASSERT_EQ(copy.next(ahead), ReadStatus::kPacket);
  EXPECT_EQ(ahead.ip, 0x7fff00401236);
  EXPECT_EQ(reader.offset(), 7);
  ASSERT_EQ(reader.next(packet), ReadStatus::kPacket);
  EXPECT_EQ(packet.ip, 0x7fff00401234);
}

// SKD007: the CYC's second byte is an OVF's first. Without the erratum it is a CYC, and what
// follows another.
TEST(PacketReaderTest, AnOverflowInsideACycIsFoundWithTheErratum) {
  const auto trace = bytes_of({0xf7, 0x02, 0xf3, 0x06});
  EXPECT_THAT(texts(trace, {.skd007 = true}), ElementsAre("OVF", "TNT T (1)"));
  EXPECT_THAT(texts(trace), ElementsAre("CYC 0x3e", "CYC 0x1e", "TNT T (1)"));
  PacketReader reader(trace, {.skd007 = true});
  Packet packet;
  ASSERT_EQ(reader.next(packet), ReadStatus::kPacket);
  EXPECT_EQ(packet.offset, 1);
  EXPECT_EQ(reader.offset(), 3);
}

// SKZ84: eight bytes instead of seven, and reserved bits set.
TEST(PacketReaderTest, ACorruptTmaIsSkippedWithTheErratum) {
  const auto trace = bytes_of({0x02, 0x73, 1, 1, 1, 1, 0, 0, 0x06});
  EXPECT_THAT(texts(trace, {.skz84 = true}), ElementsAre("skipped 8 bytes", "TNT T (1)"));
  EXPECT_THAT(texts(trace), ElementsAre());
  // The eighth byte may be cut off.
  EXPECT_THAT(texts(bytes_of({0x02, 0x73, 1, 1, 1, 1, 0}), {.skz84 = true}),
              ElementsAre("skipped 7 bytes"));
}

TEST(PacketReaderTest, TheFirstTscIsThatBeforeTheFirstError) {
  auto trace = bytes_of({0x06, 0x00, 0x19, 7, 6, 5, 4, 3, 2, 1, 0x19, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(first_tsc(trace), 0x01020304050607);
  trace[2] = std::byte{0x59};
  EXPECT_EQ(first_tsc(trace), std::nullopt);  // 05 is no packet
  EXPECT_EQ(first_tsc({}), std::nullopt);
}

bool same(const Packet& a, const Packet& b) {
  return a.kind == b.kind && a.size_bytes == b.size_bytes && a.ipc == b.ipc &&
         a.tnt_bits == b.tnt_bits && a.extra == b.extra && a.offset == b.offset &&
         a.payload == b.payload && a.flags == b.flags;
}

// The short cut is for packets with sixteen bytes to go, parse_packet() for all.
TEST(PacketReaderTest, TheShortCutReadsWhatTheParserReads) {
  uint64_t packets = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    testing::RandomTrace random(seed);
    const Trace trace = seed % 2 == 0 ? random.make(300) : random.make_bytes(300);
    PacketReader reader(trace, {.skd007 = seed % 4 == 3});
    while (reader.offset() < trace.size()) {
      const size_t offset = reader.offset();
      Packet parsed;
      parsed.offset = offset;
      const ReadStatus expected =
          parse_packet(std::span(trace).subspan(offset), {.skd007 = seed % 4 == 3}, parsed);
      Packet packet;
      // Blocks are of no interest here.
      reader.seek(offset);
      ASSERT_EQ(reader.next(packet), expected);
      if (expected != ReadStatus::kPacket) {
        reader.seek(offset + 1);
        continue;
      }
      ASSERT_TRUE(same(packet, parsed)) << text(packet) << ", but " << text(parsed);
      ++packets;
    }
  }
  EXPECT_GT(packets, 10'000);
}

}  // namespace
}  // namespace auxtrail::pt
