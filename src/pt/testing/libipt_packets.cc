#include "pt/testing/libipt_packets.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace auxtrail::pt::testing {
namespace {

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
bool is_newer_than_libipt(PacketKind kind) {
  return kind >= PacketKind::kCfe && kind != PacketKind::kInvalid;
}

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
    case PacketKind::kInvalid:
      return ppt_invalid;
    default:
      return ppt_unknown;
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
      // libipt has it in bit 3 alone; see read_pwre() in packet_parser.cc.
      if (p.pwre.hw != 0) {
        EXPECT_EQ(ours.flags, 1);
      }
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

// libipt does not know the packet: it is newer, or it is an item of a block, which may look like
// any other.
void expect_unknown(const Packet& ours, int their_status) {
  if (ours.kind != PacketKind::kBip) {
    EXPECT_EQ(their_status, -pte_bad_opc);
  }
}

// SKD007. The packet decoder of libipt 2.0.5 does not work around it; that of newer ones has this
// rule.
bool is_swallowed_overflow(const Trace& trace, size_t offset, const pt_packet& theirs) {
  return theirs.type == ppt_cyc && theirs.size == 2 &&
         (theirs.payload.cyc.value & ~uint64_t{0x1f}) == 0x20 && offset + 2 < trace.size() &&
         trace[offset + 2] == std::byte{0xf3};
}

void expect_same_error(ReadStatus status, int their_status, size_t bytes_left) {
  if (their_status == -pte_bad_opc && status == ReadStatus::kTruncated) {
    EXPECT_LT(bytes_left, 16U) << "only a packet newer than libipt, cut short, may differ";
  } else {
    EXPECT_EQ(-as_libipt(status), their_status);
  }
}

}  // namespace

LibiptPackets::LibiptPackets(const Trace& trace, const Errata& errata) {
  pt_config config;
  pt_config_init(&config);
  config.errata.skd007 = errata.skd007 ? 1 : 0;
  config.errata.skz84 = errata.skz84 ? 1 : 0;
  config.begin = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(trace.data()));
  config.end = config.begin + trace.size();
  decoder_.reset(pt_pkt_alloc_decoder(&config));
}

int LibiptPackets::at(size_t offset, pt_packet& packet) {
  const int status = pt_pkt_sync_set(decoder_.get(), offset);
  return status < 0 ? status : pt_pkt_next(decoder_.get(), &packet, sizeof(packet));
}

uint64_t LibiptPackets::offset() const {
  uint64_t offset = 0;
  pt_pkt_get_offset(decoder_.get(), &offset);
  return offset;
}

std::vector<uint64_t> LibiptPackets::psbs_forward() {
  std::vector<uint64_t> psbs;
  while (pt_pkt_sync_forward(decoder_.get()) >= 0) psbs.push_back(offset());
  return psbs;
}

std::vector<uint64_t> LibiptPackets::psbs_backward() {
  std::vector<uint64_t> psbs;
  while (pt_pkt_sync_backward(decoder_.get()) >= 0) {
    if (!psbs.empty() && offset() >= psbs.back()) break;  // it does not get on
    psbs.push_back(offset());
  }
  return psbs;
}

Comparison compare(const Trace& trace, const Errata& errata) {
  Comparison result;
  PacketReader reader(trace, errata);
  LibiptPackets libipt(trace, errata);
  bool in_block = false;
  while (reader.offset() < trace.size() && !::testing::Test::HasFailure()) {
    const size_t offset = reader.offset();
    Packet ours;
    pt_packet theirs{};
    const auto status = reader.next(ours);
    const int their_status = libipt.at(offset, theirs);
    SCOPED_TRACE(fmt::format("offset {} of {}", offset, trace.size()));
    if (status != ReadStatus::kPacket) {
      const bool cut_item = in_block && status == ReadStatus::kTruncated;
      if (!cut_item) expect_same_error(status, their_status, trace.size() - offset);
      in_block = false;
      EXPECT_EQ(reader.offset(), offset) << "an error must not move the reader";
      reader.seek(offset + 1);
      ++result.errors;
      continue;
    }
    ++result.packets;
    ++result.kinds[static_cast<size_t>(ours.kind)];
    in_block = ours.kind == PacketKind::kBbp || (in_block && keeps_block(ours.kind));
    EXPECT_EQ(reader.offset(), ours.offset + ours.size_bytes);
    if (is_newer_than_libipt(ours.kind)) {
      expect_unknown(ours, their_status);
      continue;
    }
    if (errata.skd007 && is_swallowed_overflow(trace, offset, theirs)) {
      EXPECT_EQ(ours.kind, PacketKind::kOvf);
      EXPECT_EQ(ours.offset, offset + 1);
      continue;
    }
    EXPECT_EQ(ours.offset, offset);
    // libipt goes beyond the end by a byte if SKZ84's is missing there.
    EXPECT_EQ(std::min<uint64_t>(libipt.offset(), trace.size()), reader.offset());
    EXPECT_EQ(libipt_type(ours.kind), theirs.type);
    if (!::testing::Test::HasFailure()) expect_same_payload(ours, theirs);
  }
  return result;
}

}  // namespace auxtrail::pt::testing
