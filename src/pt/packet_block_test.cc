// PEBS blocks: BBP opens one, BIP items stand in it, BEP and most other packets close it. The bytes
// of an item are those of a TNT outside, and libipt knows none of them: encoded by hand after the
// SDM, "Block Begin Packet", "Block Item Packet", "Block End Packet"; which packets leave a block
// open is Linux perf's rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pt/testing/packet_texts.h"

namespace auxtrail::pt {
namespace {

using testing::bytes_of;
using ::testing::ElementsAre;
using testing::put_psb;
using testing::texts;
using testing::Trace;

Trace operator+(Trace left, const Trace& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

const Trace kOpen4 = bytes_of({0x02, 0x63, 0x81});
const Trace kItem4 = bytes_of({0x0c, 1, 2, 3, 4});
const Trace kClose = bytes_of({0x02, 0x33});
// Enough that the reader's short cut is open.
const Trace kRest = bytes_of({0x06, 0x06, 0x06, 0x06, 0x06, 0x06, 0x06, 0x06, 0x06, 0x06,
                              0x06, 0x06, 0x06, 0x06, 0x06, 0x06, 0x06, 0x06, 0x06, 0x06});

std::string first_behind_open_block(const Trace& between) {
  const auto lines = texts(kOpen4 + between + kItem4 + kRest);
  const size_t count = texts(between).size();
  return lines.size() > count + 1 ? lines[count + 1] : "nothing";
}

// Between BBP and BEP a byte with the low bits 100 is an item, outside it is a TNT.
TEST(PacketBlockTest, ItemsAreReadOnlyInsideABlock) {
  EXPECT_THAT(texts(bytes_of({0x0c, 0x02, 0x63, 0x81, 0x0c, 1, 2, 3, 4, 0x02, 0x33, 0x0c})),
              ElementsAre("TNT TN (2)", "BBP SZ 4-byte Type 0x1", "BIP ID 0x01 Value 0x4030201",
                          "BEP IP:0", "TNT TN (2)"));
}

TEST(PacketBlockTest, ItemsOfEightBytes) {
  EXPECT_THAT(texts(bytes_of({0x02, 0x63, 0x04, 0xfc, 8, 7, 6, 5, 4,    3,    2,   1,
                              0x04, 0,    0,    0,    0, 0, 0, 0, 0xff, 0x02, 0xb3})),
              ElementsAre("BBP SZ 8-byte Type 0x4", "BIP ID 0x1f Value 0x102030405060708",
                          "BIP ID 0x00 Value 0xff00000000000000", "BEP IP:1"));
}

// Values that look like a PSB, an opcode, padding.
TEST(PacketBlockTest, ValuesAreNotLookedAt) {
  EXPECT_THAT(texts(kOpen4 + bytes_of({0x14, 0x02, 0x82, 0x02, 0x82, 0x1c, 0, 0, 0, 0}) + kClose),
              ElementsAre("BBP SZ 4-byte Type 0x1", "BIP ID 0x02 Value 0x82028202",
                          "BIP ID 0x03 Value 0x0", "BEP IP:0"));
}

TEST(PacketBlockTest, EveryItemNumber) {
  for (int id = 0; id < 32; ++id) {
    EXPECT_EQ(
        texts(kOpen4 + bytes_of({id << 3 | 4, 1, 0, 0, 0}) + kRest)[1],
        text(Packet{.kind = PacketKind::kBip, .extra = static_cast<uint32_t>(id), .payload = 1}));
  }
}

TEST(PacketBlockTest, ACutItemIsTruncated) {
  for (const size_t cut : {1, 2, 3, 4}) {
    Trace trace = kOpen4 + kItem4;
    trace.resize(trace.size() - cut);
    PacketReader reader(trace);
    Packet packet;
    ASSERT_EQ(reader.next(packet), ReadStatus::kPacket);
    EXPECT_EQ(reader.next(packet), ReadStatus::kTruncated);
    EXPECT_EQ(reader.offset(), 3);
  }
}

TEST(PacketBlockTest, TheseLeaveABlockOpen) {
  const std::vector<Trace> packets = {
      bytes_of({0x00}),                                      // PAD
      bytes_of({0x19, 1, 2, 3, 4, 5, 6, 7}),                 // TSC
      bytes_of({0x02, 0x73, 1, 1, 0, 1, 0}),                 // TMA
      bytes_of({0x59, 1}),                                   // MTC
      bytes_of({0x0b}),                                      // CYC
      bytes_of({0x02, 0x03, 8, 0}),                          // CBR
      bytes_of({0x3d, 1, 2}),                                // FUP
      bytes_of({0x02, 0xc3, 0x88, 1, 2, 3, 4, 5, 6, 7, 8}),  // MNT
      bytes_of({0x02, 0x62}),                                // EXSTOP
      bytes_of({0x02, 0x22, 0, 0}),                          // PWRE
      bytes_of({0x02, 0xa2, 0, 0, 0, 0, 0}),                 // PWRX
  };
  for (const Trace& packet : packets) {
    EXPECT_EQ(first_behind_open_block(packet), "BIP ID 0x01 Value 0x4030201") << texts(packet)[0];
  }
}

TEST(PacketBlockTest, TheseCloseABlock) {
  Trace psb;
  put_psb(psb);
  const std::vector<Trace> packets = {
      kClose,
      psb,
      bytes_of({0x02, 0x23}),                          // PSBEND
      bytes_of({0x02, 0xf3}),                          // OVF
      bytes_of({0x2d, 1, 2}),                          // TIP
      bytes_of({0x31, 1, 2}),                          // TIP.PGE
      bytes_of({0x01}),                                // TIP.PGD
      bytes_of({0x06}),                                // TNT
      bytes_of({0x02, 0xa3, 2, 0, 0, 0, 0, 0}),        // TNT of eight bytes
      bytes_of({0x99, 0x01}),                          // MODE.Exec
      bytes_of({0x02, 0x43, 0, 1, 0, 0, 0, 0}),        // PIP
      bytes_of({0x02, 0xc8, 1, 0, 0, 0, 0}),           // VMCS
      bytes_of({0x02, 0x83}),                          // TraceSTOP
      bytes_of({0x02, 0x12, 1, 2, 3, 4}),              // PTWRITE
      bytes_of({0x02, 0xc2, 1, 0, 0, 0, 0, 0, 0, 0}),  // MWAIT
      bytes_of({0x02, 0x13, 1, 2}),                    // CFE
  };
  for (const Trace& packet : packets) {
    EXPECT_EQ(first_behind_open_block(packet), "TNT TN (2)") << texts(packet)[0];
  }
}

TEST(PacketBlockTest, ABlockInABlockHasItsOwnSize) {
  EXPECT_THAT(texts(kOpen4 + kItem4 + bytes_of({0x02, 0x63, 0x02, 0x0c, 1, 2, 3, 4, 0, 0, 0, 0})),
              ElementsAre("BBP SZ 4-byte Type 0x1", "BIP ID 0x01 Value 0x4030201",
                          "BBP SZ 8-byte Type 0x2", "BIP ID 0x01 Value 0x4030201"));
}

TEST(PacketBlockTest, SeekForgetsTheBlock) {
  const Trace trace = kOpen4 + kItem4 + kRest;
  PacketReader reader(trace);
  Packet packet;
  ASSERT_EQ(reader.next(packet), ReadStatus::kPacket);
  reader.seek(3);
  ASSERT_EQ(reader.next(packet), ReadStatus::kPacket);
  EXPECT_EQ(packet.kind, PacketKind::kTnt8);
}

}  // namespace
}  // namespace auxtrail::pt
