// PacketWriter against libipt: what it encodes, libipt's packet decoder reads back, packet by
// packet and bit by bit.
#include "pt/packet_writer.h"

#include <gtest/gtest.h>
#include <intel-pt.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

namespace auxtrail::pt {
namespace {

struct PacketDecoder {
  explicit PacketDecoder(std::vector<uint8_t>& bytes, size_t size) {
    pt_config config;
    pt_config_init(&config);
    config.begin = bytes.data();
    config.end = bytes.data() + size;
    decoder = pt_pkt_alloc_decoder(&config);
    EXPECT_EQ(pt_pkt_sync_set(decoder, 0), 0);
  }
  ~PacketDecoder() { pt_pkt_free_decoder(decoder); }
  pt_packet next() {
    pt_packet packet{};
    const int size = pt_pkt_next(decoder, &packet, sizeof packet);
    EXPECT_GT(size, 0);
    return packet;
  }
  bool at_end() {
    pt_packet packet{};
    return pt_pkt_next(decoder, &packet, sizeof packet) == -pte_eos;
  }
  pt_packet_decoder* decoder;
};

// What a decoder makes of an IP payload, given the last IP (SDM, "IP compression").
uint64_t expand(const pt_packet_ip& packet, uint64_t last) {
  switch (packet.ipc) {
    case pt_ipc_update_16:
      return (last & ~uint64_t{0xffff}) | packet.ip;
    case pt_ipc_update_32:
      return (last & ~uint64_t{0xffffffff}) | packet.ip;
    case pt_ipc_sext_48:
      return static_cast<uint64_t>(static_cast<int64_t>(packet.ip << 16) >> 16);
    default:
      ADD_FAILURE() << "unexpected compression " << packet.ipc;
      return 0;
  }
}

// Who takes the first sixteen bytes that look like a PSB, as perf does, finds it where it is,
// whatever address comes before it. (libipt would find it without help.)
TEST(PacketWriter, APsbIsFoundBehindAnIpThatEndsLikeIt) {
  constexpr std::array<uint8_t, 16> kPsb = {0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82,
                                            0x02, 0x82, 0x02, 0x82, 0x02, 0x82, 0x02, 0x82};
  std::vector<uint8_t> bytes(256);
  PacketWriter writer(bytes.data());
  writer.tip(0x7f0082021234);
  writer.tip(0x7f0082028202);
  writer.psb_plus(0x7f0012345680, 1);
  const auto found = std::search(bytes.begin(), bytes.end(), kPsb.begin(), kPsb.end());
  ASSERT_NE(found, bytes.end());
  EXPECT_EQ(found[16], 0x19) << "TSC comes next";
}

TEST(PacketWriter, WindowHeaderAndEndAreWhatADecoderExpects) {
  std::vector<uint8_t> bytes(256);
  PacketWriter writer(bytes.data());
  writer.begin(0x7f0012345678, 0x00abcdef01234567);
  EXPECT_LE(writer.size_bytes(), PacketWriter::kMaxHeaderBytes);
  writer.end(0x7f0012345680);
  PacketDecoder decoder(bytes, writer.size_bytes());
  EXPECT_EQ(decoder.next().type, ppt_psb);
  const pt_packet tsc = decoder.next();
  EXPECT_EQ(tsc.type, ppt_tsc);
  EXPECT_EQ(tsc.payload.tsc.tsc, 0x00abcdef01234567U & 0xffffffffffffffU);
  EXPECT_EQ(decoder.next().type, ppt_cbr);
  EXPECT_EQ(decoder.next().type, ppt_psbend);
  const pt_packet mode = decoder.next();
  EXPECT_EQ(mode.type, ppt_mode);
  EXPECT_EQ(mode.payload.mode.leaf, pt_mol_exec);
  EXPECT_EQ(mode.payload.mode.bits.exec.csl, 1U);
  const pt_packet enable = decoder.next();
  EXPECT_EQ(enable.type, ppt_tip_pge);
  EXPECT_EQ(expand(enable.payload.ip, 0), 0x7f0012345678U);
  const pt_packet fup = decoder.next();
  EXPECT_EQ(fup.type, ppt_fup);
  EXPECT_EQ(expand(fup.payload.ip, 0x7f0012345678), 0x7f0012345680U);
  const pt_packet disable = decoder.next();
  EXPECT_EQ(disable.type, ppt_tip_pgd);
  EXPECT_EQ(disable.payload.ip.ipc, pt_ipc_suppressed);
  EXPECT_TRUE(decoder.at_end());
}

TEST(PacketWriter, ABranchThatEndsTheTraceTellsItsTarget) {
  std::vector<uint8_t> bytes(256);
  PacketWriter writer(bytes.data());
  writer.psb();
  writer.tip_pge(0x401000);
  writer.tip_pgd(0x7f0012345678);
  writer.tip_pge(0x7f0012349999);  // two bytes of it differ from the TIP.PGD's
  writer.tip_pgd_no_ip();
  writer.trace_stop();
  PacketDecoder decoder(bytes, writer.size_bytes());
  EXPECT_EQ(decoder.next().type, ppt_psb);
  EXPECT_EQ(decoder.next().type, ppt_tip_pge);
  const pt_packet disabled = decoder.next();
  EXPECT_EQ(disabled.type, ppt_tip_pgd);
  EXPECT_EQ(expand(disabled.payload.ip, 0x401000), 0x7f0012345678U);
  const pt_packet enabled = decoder.next();
  EXPECT_EQ(enabled.type, ppt_tip_pge);
  EXPECT_EQ(enabled.payload.ip.ipc, pt_ipc_update_16);
  EXPECT_EQ(expand(enabled.payload.ip, 0x7f0012345678), 0x7f0012349999U);
  const pt_packet suppressed = decoder.next();
  EXPECT_EQ(suppressed.type, ppt_tip_pgd);
  EXPECT_EQ(suppressed.payload.ip.ipc, pt_ipc_suppressed);
  EXPECT_EQ(decoder.next().type, ppt_stop);
  EXPECT_TRUE(decoder.at_end());
}

// What a decoder takes for the last IP, which packets that were lost may have changed, is of no
// account.
TEST(PacketWriter, BehindAnOverflowTheIpIsWhole) {
  std::vector<uint8_t> bytes(256);
  PacketWriter writer(bytes.data());
  writer.psb();
  writer.tip(0x401000);
  writer.overflow();
  writer.fup(0x401000);
  PacketDecoder decoder(bytes, writer.size_bytes());
  EXPECT_EQ(decoder.next().type, ppt_psb);
  EXPECT_EQ(decoder.next().type, ppt_tip);
  EXPECT_EQ(decoder.next().type, ppt_ovf);
  const pt_packet fup = decoder.next();
  EXPECT_EQ(fup.type, ppt_fup);
  EXPECT_EQ(expand(fup.payload.ip, 0x7f0012345678), 0x401000U);
  EXPECT_TRUE(decoder.at_end());
}

TEST(PacketWriter, APathAndItsTipReadBackWhateverIsPending) {
  std::mt19937_64 random(11);
  for (uint32_t pending = 0; pending < 48; ++pending) {
    for (uint32_t path = 1; path < 1 << 17; path += 1 + path / 64) {
      std::vector<uint8_t> bytes(256);
      PacketWriter writer(bytes.data());
      std::vector<bool> outcomes;
      for (uint32_t i = 0; i < pending; ++i) {
        outcomes.push_back((random() & 1) != 0);
        writer.tnt(outcomes.back() ? 1 : 0, 1);
      }
      const auto count = static_cast<uint32_t>(31 - __builtin_clz(path));
      for (uint32_t i = count; i-- > 0;) outcomes.push_back((path >> i & 1) != 0);
      const uint64_t target = random() >> 17 >> random() % 47;
      writer.tnt(path ^ 1U << count, count);
      writer.flush_tnt();
      writer.tip(target);
      PacketDecoder decoder(bytes, writer.size_bytes());
      std::vector<bool> read;
      pt_packet packet = decoder.next();
      for (; packet.type == ppt_tnt_8; packet = decoder.next()) {
        for (uint32_t i = packet.payload.tnt.bit_size; i-- > 0;) {
          read.push_back((packet.payload.tnt.payload >> i & 1) != 0);
        }
      }
      ASSERT_EQ(read, outcomes) << pending << " " << path;
      ASSERT_EQ(packet.type, ppt_tip);
      ASSERT_EQ(expand(packet.payload.ip, 0), target);
      ASSERT_TRUE(decoder.at_end());
    }
  }
}

TEST(PacketWriter, RandomOutcomesAndTargetsComeBackInOrder) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<uint8_t> bytes(1 << 16);
    PacketWriter writer(bytes.data());
    writer.psb();
    std::vector<uint64_t> expected;  // 0 or 1: an outcome; anything else: a target
    uint64_t target = 0x7f0000000000 | (random() & 0xffffffffff);
    for (int i = 0; i < 400; ++i) {
      const auto count = static_cast<uint32_t>(random() % 17);
      const auto outcomes = static_cast<uint32_t>(random() & ((1U << count) - 1));
      writer.tnt(outcomes, count);
      for (uint32_t k = count; k-- > 0;) expected.push_back(outcomes >> k & 1);
      if (random() % 3 != 0) continue;
      // Near, middle and far targets: each compression comes up.
      const uint64_t reach =
          std::array<uint64_t, 3>{0xffff, 0xffffffff, 0x7fffffffffff}[random() % 3];
      target = ((target & ~reach) | (random() & reach)) | 2;
      writer.flush_tnt();
      writer.tip(target);
      expected.push_back(target);
    }
    writer.flush_tnt();
    PacketDecoder decoder(bytes, writer.size_bytes());
    ASSERT_EQ(decoder.next().type, ppt_psb);
    std::vector<uint64_t> got;
    uint64_t last = 0;
    while (got.size() < expected.size()) {
      const pt_packet packet = decoder.next();
      if (packet.type == ppt_tnt_8) {
        for (uint8_t k = packet.payload.tnt.bit_size; k-- > 0;) {
          got.push_back(packet.payload.tnt.payload >> k & 1);
        }
      } else {
        ASSERT_EQ(packet.type, ppt_tip);
        last = expand(packet.payload.ip, last);
        got.push_back(last);
      }
    }
    ASSERT_EQ(got, expected) << "round " << round;
    EXPECT_TRUE(decoder.at_end());
  }
}

}  // namespace
}  // namespace auxtrail::pt
