// PacketReader against libipt's packet decoder: same packets, same payloads, same errors at the
// same offsets, on every kind of packet that libipt's encoder writes, on damaged traces, on random
// bytes and on real traces.
#include "pt/packet_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intel-pt.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>

namespace auxtrail::pt {
namespace {

using Trace = std::vector<std::byte>;

int as_libipt(ReadStatus status) {
  switch (status) {
    case ReadStatus::kPacket:
      return pte_ok;
    case ReadStatus::kEnd:
    case ReadStatus::kTruncated:
      return pte_eos;
    case ReadStatus::kBadOpcode:
      return pte_bad_opc;
    case ReadStatus::kBadPacket:
      return pte_bad_packet;
  }
  return pte_internal;
}

// What libipt 2.0.5 does not know; it reports an unknown opcode there.
bool is_newer_than_libipt(PacketKind kind) { return kind >= PacketKind::kCfe; }

pt_packet_type libipt_type(PacketKind kind) {
  switch (kind) {
    case PacketKind::kPad:
      return ppt_pad;
    case PacketKind::kPsb:
      return ppt_psb;
    case PacketKind::kPsbEnd:
      return ppt_psbend;
    case PacketKind::kFup:
      return ppt_fup;
    case PacketKind::kTip:
      return ppt_tip;
    case PacketKind::kTipPge:
      return ppt_tip_pge;
    case PacketKind::kTipPgd:
      return ppt_tip_pgd;
    case PacketKind::kTnt8:
      return ppt_tnt_8;
    case PacketKind::kTnt64:
      return ppt_tnt_64;
    case PacketKind::kModeExec:
    case PacketKind::kModeTsx:
      return ppt_mode;
    case PacketKind::kPip:
      return ppt_pip;
    case PacketKind::kVmcs:
      return ppt_vmcs;
    case PacketKind::kCbr:
      return ppt_cbr;
    case PacketKind::kTsc:
      return ppt_tsc;
    case PacketKind::kTma:
      return ppt_tma;
    case PacketKind::kMtc:
      return ppt_mtc;
    case PacketKind::kCyc:
      return ppt_cyc;
    case PacketKind::kStop:
      return ppt_stop;
    case PacketKind::kOvf:
      return ppt_ovf;
    case PacketKind::kMnt:
      return ppt_mnt;
    case PacketKind::kExstop:
      return ppt_exstop;
    case PacketKind::kMwait:
      return ppt_mwait;
    case PacketKind::kPwre:
      return ppt_pwre;
    case PacketKind::kPwrx:
      return ppt_pwrx;
    case PacketKind::kPtw:
      return ppt_ptw;
    default:
      return ppt_invalid;
  }
}

void expect_same_payload(const Packet& ours, const pt_packet& theirs) {
  const auto& p = theirs.payload;
  switch (ours.kind) {
    case PacketKind::kFup:
    case PacketKind::kTip:
    case PacketKind::kTipPge:
    case PacketKind::kTipPgd:
      EXPECT_EQ(static_cast<int>(ours.ipc), static_cast<int>(p.ip.ipc));
      EXPECT_EQ(ours.payload, p.ip.ip);
      break;
    case PacketKind::kTnt8:
    case PacketKind::kTnt64:
      EXPECT_EQ(ours.tnt_bits, p.tnt.bit_size);
      EXPECT_EQ(ours.payload, p.tnt.payload);
      break;
    case PacketKind::kModeExec:
      EXPECT_EQ(p.mode.leaf, pt_mol_exec);
      EXPECT_EQ(ours.flags & 1U, p.mode.bits.exec.csl);
      EXPECT_EQ(ours.flags >> 1 & 1U, p.mode.bits.exec.csd);
      break;
    case PacketKind::kModeTsx:
      EXPECT_EQ(p.mode.leaf, pt_mol_tsx);
      EXPECT_EQ(ours.flags & 1U, p.mode.bits.tsx.intx);
      EXPECT_EQ(ours.flags >> 1 & 1U, p.mode.bits.tsx.abrt);
      break;
    case PacketKind::kPip:
      EXPECT_EQ(ours.payload, p.pip.cr3);
      EXPECT_EQ(ours.flags, p.pip.nr);
      break;
    case PacketKind::kVmcs:
      EXPECT_EQ(ours.payload, p.vmcs.base);
      break;
    case PacketKind::kCbr:
      EXPECT_EQ(ours.payload, p.cbr.ratio);
      break;
    case PacketKind::kTsc:
      EXPECT_EQ(ours.payload, p.tsc.tsc);
      break;
    case PacketKind::kTma:
      EXPECT_EQ(ours.payload, p.tma.ctc);
      EXPECT_EQ(ours.extra, p.tma.fc);
      break;
    case PacketKind::kMtc:
      EXPECT_EQ(ours.payload, p.mtc.ctc);
      break;
    case PacketKind::kCyc:
      EXPECT_EQ(ours.payload, p.cyc.value);
      break;
    case PacketKind::kMnt:
      EXPECT_EQ(ours.payload, p.mnt.payload);
      break;
    case PacketKind::kExstop:
      EXPECT_EQ(ours.flags, p.exstop.ip);
      break;
    case PacketKind::kMwait:
      EXPECT_EQ(ours.payload, p.mwait.hints);
      EXPECT_EQ(ours.extra, p.mwait.ext);
      break;
    case PacketKind::kPwre:
      EXPECT_EQ(ours.payload, p.pwre.state);
      EXPECT_EQ(ours.extra, p.pwre.sub_state);
      // Not compared: libipt takes the HW flag from bit 3 of the third byte, SDM and perf from
      // bit 7.
      break;
    case PacketKind::kPwrx:
      EXPECT_EQ(ours.payload, p.pwrx.last);
      EXPECT_EQ(ours.extra, p.pwrx.deepest);
      EXPECT_EQ(ours.flags & 1U, p.pwrx.interrupt);
      EXPECT_EQ(ours.flags >> 1 & 1U, p.pwrx.store);
      EXPECT_EQ(ours.flags >> 2 & 1U, p.pwrx.autonomous);
      break;
    case PacketKind::kPtw:
      EXPECT_EQ(ours.payload, p.ptw.payload);
      EXPECT_EQ(ours.extra, static_cast<uint32_t>(pt_ptw_size(p.ptw.plc)));
      EXPECT_EQ(ours.flags, p.ptw.ip);
      break;
    default:
      break;
  }
}

struct Comparison {
  uint64_t packets = 0;
  uint64_t errors = 0;
  std::array<uint64_t, static_cast<size_t>(PacketKind::kCount)> kinds{};
};

class LibiptPackets {
 public:
  explicit LibiptPackets(const Trace& trace) {
    pt_config config;
    pt_config_init(&config);
    config.begin = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(trace.data()));
    config.end = config.begin + trace.size();
    decoder_.reset(pt_pkt_alloc_decoder(&config));
  }
  int at(size_t offset, pt_packet& packet) {
    const int status = pt_pkt_sync_set(decoder_.get(), offset);
    return status < 0 ? status : pt_pkt_next(decoder_.get(), &packet, sizeof(packet));
  }

 private:
  std::unique_ptr<pt_packet_decoder, decltype(&pt_pkt_free_decoder)> decoder_{nullptr,
                                                                              &pt_pkt_free_decoder};
};

// Reads the whole trace with both; after an error both go on one byte further.
Comparison compare(const Trace& trace) {
  Comparison result;
  PacketReader reader(trace);
  LibiptPackets libipt(trace);
  while (reader.offset() < trace.size()) {
    const size_t offset = reader.offset();
    Packet ours;
    pt_packet theirs{};
    const auto status = reader.next(ours);
    const int their_status = libipt.at(offset, theirs);
    SCOPED_TRACE(fmt::format("offset {} of {}", offset, trace.size()));
    if (status == ReadStatus::kPacket && is_newer_than_libipt(ours.kind)) {
      // A block item may look like any packet to libipt, which does not know of blocks.
      if (ours.kind != PacketKind::kBip) {
        EXPECT_EQ(their_status, -pte_bad_opc);
      }
    } else if (status == ReadStatus::kPacket) {
      EXPECT_EQ(ours.offset, offset);
      EXPECT_EQ(their_status, ours.size_bytes);
      EXPECT_EQ(libipt_type(ours.kind), theirs.type);
      if (!testing::Test::HasFailure()) expect_same_payload(ours, theirs);
    } else {
      if (their_status == -pte_bad_opc && status == ReadStatus::kTruncated) {
        // A packet newer than libipt, cut short.
        EXPECT_LT(trace.size() - offset, 16U);
      } else {
        EXPECT_EQ(-as_libipt(status), their_status);
      }
      EXPECT_EQ(reader.offset(), offset) << "an error must not move the reader";
      reader.seek(offset + 1);
      ++result.errors;
    }
    if (testing::Test::HasFailure()) break;
    if (status == ReadStatus::kPacket) {
      ++result.packets;
      ++result.kinds[static_cast<size_t>(ours.kind)];
    }
  }
  return result;
}

// Random packets of all kinds through libipt's encoder.
class RandomTrace {
 public:
  explicit RandomTrace(uint32_t seed) : random_(seed) {}

  Trace make(size_t packets) {
    Trace trace(packets * 16);
    pt_config config;
    pt_config_init(&config);
    config.begin = reinterpret_cast<uint8_t*>(trace.data());
    config.end = config.begin + trace.size();
    const std::unique_ptr<pt_encoder, decltype(&pt_free_encoder)> encoder(pt_alloc_encoder(&config),
                                                                          &pt_free_encoder);
    for (size_t i = 0; i < packets; ++i) {
      const pt_packet packet = make_packet();
      EXPECT_GT(pt_enc_next(encoder.get(), &packet), 0) << "packet type " << packet.type;
    }
    uint64_t size = 0;
    pt_enc_get_offset(encoder.get(), &size);
    trace.resize(size);
    return trace;
  }

  uint64_t number(uint64_t bits = 64) { return random_() >> (64 - bits); }

 private:
  pt_packet make_packet() {
    pt_packet packet{};
    packet.type = static_cast<pt_packet_type>(ppt_pad + static_cast<int>(random_() % 25));
    auto& p = packet.payload;
    switch (packet.type) {
      case ppt_fup:
      case ppt_tip:
      case ppt_tip_pge:
      case ppt_tip_pgd: {
        constexpr std::array kCompressions = {pt_ipc_suppressed, pt_ipc_update_16, pt_ipc_update_32,
                                              pt_ipc_sext_48,    pt_ipc_update_48, pt_ipc_full};
        p.ip = {kCompressions[random_() % kCompressions.size()], number()};
        break;
      }
      case ppt_tnt_8:
        p.tnt = tnt(1 + static_cast<uint8_t>(random_() % 6));
        break;
      case ppt_tnt_64:
        p.tnt = tnt(1 + static_cast<uint8_t>(random_() % 47));
        break;
      case ppt_mode:
        if (number(1) != 0) {
          p.mode.leaf = pt_mol_exec;
          p.mode.bits.exec.csl = number(1) != 0;
          p.mode.bits.exec.csd = number(1) != 0;
        } else {
          p.mode.leaf = pt_mol_tsx;
          p.mode.bits.tsx.intx = number(1) != 0;
          p.mode.bits.tsx.abrt = number(1) != 0;
        }
        break;
      case ppt_pip:
        p.pip.cr3 = number(47) << 5;
        p.pip.nr = number(1) != 0;
        break;
      case ppt_vmcs:
        p.vmcs.base = number(40) << 12;
        break;
      case ppt_cbr:
        p.cbr.ratio = static_cast<uint8_t>(number(8));
        break;
      case ppt_tsc:
        p.tsc.tsc = number(56);
        break;
      case ppt_tma:
        p.tma.ctc = static_cast<uint16_t>(number(16));
        p.tma.fc = static_cast<uint16_t>(number(9));
        break;
      case ppt_mtc:
        p.mtc.ctc = static_cast<uint8_t>(number(8));
        break;
      case ppt_cyc:
        p.cyc.value = number(1 + random_() % 60);
        break;
      case ppt_mnt:
        p.mnt.payload = number();
        break;
      case ppt_exstop:
        p.exstop.ip = number(1) != 0;
        break;
      case ppt_mwait:
        p.mwait.hints = static_cast<uint32_t>(number(8));
        p.mwait.ext = static_cast<uint32_t>(number(2));
        break;
      case ppt_pwre:
        p.pwre.state = static_cast<uint8_t>(number(4));
        p.pwre.sub_state = static_cast<uint8_t>(number(4));
        p.pwre.hw = number(1) != 0;
        break;
      case ppt_pwrx:
        p.pwrx.last = static_cast<uint8_t>(number(4));
        p.pwrx.deepest = static_cast<uint8_t>(number(4));
        p.pwrx.interrupt = number(1) != 0;
        p.pwrx.store = number(1) != 0;
        p.pwrx.autonomous = number(1) != 0;
        break;
      case ppt_ptw:
        p.ptw.plc = static_cast<uint8_t>(number(1));
        p.ptw.payload = number(p.ptw.plc == 0 ? 32 : 64);
        p.ptw.ip = number(1) != 0;
        break;
      default:
        break;
    }
    return packet;
  }

  pt_packet_tnt tnt(uint8_t bits) { return {bits, number(bits)}; }

  std::mt19937_64 random_;
};

TEST(PacketReaderTest, ReadsEveryPacketThatLibiptWrites) {
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

TEST(PacketReaderTest, AgreesWithLibiptOnDamagedTraces) {
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

TEST(PacketReaderTest, AgreesWithLibiptOnRandomBytes) {
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

TEST(PacketReaderTest, AgreesWithLibiptAtEveryTruncation) {
  auto trace = RandomTrace(7).make(300);
  for (size_t cut = 0; cut < 40 && !trace.empty(); ++cut) {
    trace.pop_back();
    compare(trace);
    ASSERT_FALSE(HasFailure()) << trace.size() << " bytes";
  }
}

TEST(PacketReaderTest, AgreesWithLibiptOnRealTraces) {
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

Trace bytes_of(std::initializer_list<int> values) {
  Trace trace;
  for (const int value : values) trace.push_back(static_cast<std::byte>(value));
  return trace;
}

std::vector<std::string> texts(const Trace& trace) {
  std::vector<std::string> lines;
  PacketReader reader(trace);
  Packet packet;
  while (reader.next(packet) == ReadStatus::kPacket) lines.push_back(text(packet));
  return lines;
}

// SDM: a compressed address replaces the low bytes of the last one; no address leaves it as it is.
TEST(PacketReaderTest, DecompressesAddresses) {
  EXPECT_THAT(texts(bytes_of({0x71, 0x00, 0x10, 0x40, 0x00, 0xff, 0x7f,     // TIP.PGE, 48 bits
                              0x2d, 0x34, 0x12,                             // TIP, 16 bits
                              0x01,                                         // TIP.PGD, none
                              0x4d, 0x78, 0x56, 0x34, 0x12,                 // TIP, 32 bits
                              0x6d, 0,    0,    0,    0,    0,    0x80})),  // TIP, sign extended
              testing::ElementsAre("TIP.PGE 0x7fff00401000", "TIP 0x7fff00401234", "TIP.PGD no ip",
                                   "TIP 0x7fff12345678", "TIP 0xffff800000000000"));
}

TEST(PacketReaderTest, TntReadsOldestBranchFirst) {
  EXPECT_THAT(texts(bytes_of({0b0001'1010, 0x02, 0xa3, 0b1101, 0, 0, 0, 0, 0})),
              testing::ElementsAre("TNT TNT (3)", "TNT TNT (3)"));
}

// Between BBP and BEP a byte with the low bits 100 is an item, outside it is a TNT.
TEST(PacketReaderTest, BlockItemsAreReadOnlyInsideABlock) {
  EXPECT_THAT(texts(bytes_of({0x0c, 0x02, 0x63, 0x81, 0x0c, 1, 2, 3, 4, 0x02, 0x33, 0x0c})),
              testing::ElementsAre("TNT TN (2)", "BBP SZ 4-byte Type 0x1",
                                   "BIP ID 0x01 Value 0x4030201", "BEP IP:0", "TNT TN (2)"));
}

TEST(PacketReaderTest, SyncsOnThePsbBehindGarbage) {
  auto trace = bytes_of({0x82, 0x02, 0x82, 0xff});
  for (int i = 0; i < 8; ++i) {
    trace.push_back(std::byte{0x02});
    trace.push_back(std::byte{0x82});
  }
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
  for (int i = 0; i < 8; ++i) {
    trace.push_back(std::byte{0x02});
    trace.push_back(std::byte{0x82});
  }
  trace.push_back(std::byte{0x02});  // PSBEND
  trace.push_back(std::byte{0x23});
  PacketReader reader(trace);
  ASSERT_TRUE(reader.sync_forward());
  EXPECT_EQ(reader.offset(), 3);
}

}  // namespace
}  // namespace auxtrail::pt
