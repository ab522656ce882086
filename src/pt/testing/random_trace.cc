#include "pt/testing/random_trace.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace auxtrail::pt::testing {

Trace RandomTrace::make(size_t packets) {
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

Trace RandomTrace::make_with_newer(size_t packets) {
  Trace trace;
  for (size_t i = 0; i < packets; ++i) {
    if (number(2) == 0) {
      put_newer(trace);
    } else {
      const Trace packet = make(1);
      trace.insert(trace.end(), packet.begin(), packet.end());
    }
  }
  return trace;
}

Trace RandomTrace::make_bytes(size_t size_bytes) {
  constexpr std::array<uint8_t, 8> kFrequent = {0x02, 0x02, 0x02, 0x82, 0x73, 0xf3, 0x07, 0x00};
  Trace trace(size_bytes);
  for (auto& byte : trace) {
    byte = static_cast<std::byte>(number(1) == 0 ? kFrequent[number(3)] : number(8));
  }
  return trace;
}

void RandomTrace::put_newer(Trace& trace) {
  const auto put = [&](std::initializer_list<uint64_t> bytes) {
    for (const uint64_t byte : bytes) trace.push_back(static_cast<std::byte>(byte));
  };
  const auto put_random = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) put({number(8)});
  };
  switch (number(2)) {
    case 0:  // CFE: 5 bits of type, bit 7 an IP follows; vector
      put({0x02, 0x13, number(5) | number(1) << 7, number(8)});
      break;
    case 1:  // EVD: 6 bits of type, 8 bytes
      put({0x02, 0x53, number(6)});
      put_random(8);
      break;
    case 2: {  // TRIG: bit 7 IP, bit 6 a count of instructions follows, bit 5 more than one
      const uint64_t counts = number(1);
      put({0xd9, number(1) << 7 | counts << 6 | number(1) << 5});
      put_random(counts != 0 ? 3 : 1);
      break;
    }
    default: {  // BBP with 4 or 8 bytes an item, BIP: 5 bits of number and 100, BEP
      const uint64_t small = number(1);
      put({0x02, 0x63, small << 7 | number(5)});
      for (uint64_t items = number(3); items > 0; --items) {
        put({number(5) << 3 | 4});
        put_random(small != 0 ? 4 : 8);
      }
      put({0x02, 0x33 | number(1) << 7});
      break;
    }
  }
}

pt_packet_ip RandomTrace::ip() {
  constexpr std::array kCompressions = {pt_ipc_suppressed, pt_ipc_update_16, pt_ipc_update_32,
                                        pt_ipc_sext_48,    pt_ipc_update_48, pt_ipc_full};
  return {kCompressions[random_() % kCompressions.size()], number()};
}

pt_packet_mode RandomTrace::mode() {
  pt_packet_mode mode{};
  if (number(1) != 0) {
    mode.leaf = pt_mol_exec;
    mode.bits.exec.csl = number(1) != 0;
    mode.bits.exec.csd = number(1) != 0;
  } else {
    mode.leaf = pt_mol_tsx;
    mode.bits.tsx.intx = number(1) != 0;
    mode.bits.tsx.abrt = number(1) != 0;
  }
  return mode;
}

pt_packet RandomTrace::make_packet() {
  pt_packet packet{};
  packet.type = static_cast<pt_packet_type>(ppt_pad + static_cast<int>(random_() % 25));
  auto& p = packet.payload;
  switch (packet.type) {
    case ppt_fup:
    case ppt_tip:
    case ppt_tip_pge:
    case ppt_tip_pgd:
      p.ip = ip();
      break;
    case ppt_tnt_8:
      p.tnt = tnt(1 + static_cast<uint8_t>(random_() % 6));
      break;
    case ppt_tnt_64:
      p.tnt = tnt(1 + static_cast<uint8_t>(random_() % 47));
      break;
    case ppt_mode:
      p.mode = mode();
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

}  // namespace auxtrail::pt::testing
