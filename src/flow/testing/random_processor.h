// RandomProcessor: writes what a processor could write, random groups of packets that fit its
// state, for comparisons of decoders. The flow is nonsense: no code leads from one address to the
// next.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "flow/testing/packet_bytes.h"
#include "pt/trace_config.h"

namespace auxtrail::flow::test {

class RandomProcessor {
 public:
  // With `errata`, of overflows and of PSB+.
  explicit RandomProcessor(uint64_t seed, bool errata = false) : random_(seed), errata_(errata) {}

  PacketBytes write(int groups) {
    timing_ = one_in(4) ? 0 : 1 + pick(6);
    psb_plus();
    for (int i = 0; i < groups; ++i) {
      time();
      if (one_in(12)) {
        psb_plus();
      } else if (one_in(25)) {
        overflow();
      } else if (one_in(3)) {
        anywhere();
      } else {
        on_ ? with_tracing() : without_tracing();
      }
    }
    return trace_;
  }

  pt::TraceConfig config() {
    pt::TraceConfig config;
    config.mtc_freq = static_cast<uint8_t>(pick(13));
    config.nom_freq = static_cast<uint8_t>(one_in(3) ? 0 : 1 + pick(40));
    config.cpuid_0x15_eax = one_in(8) ? 0 : 1 + pick(3);
    config.cpuid_0x15_ebx = 1 + pick(300);
    config.errata.skl168 = one_in(2);
    if (!errata_) return config;
    config.errata.bdm70 = one_in(2);
    config.errata.skd010 = skd010_ = one_in(3);
    config.errata.apl11 = apl11_ = one_in(3);
    config.errata.apl12 = apl12_ = one_in(3);
    return config;
  }

 private:
  uint32_t pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  bool one_in(uint32_t count) { return pick(count) == 0; }
  uint64_t address() {
    return (one_in(5) ? 0xffff'8000'0000'0000 : 0) | (random_() & 0xff'ffff'f0f0);
  }

  // Timing packets are allowed everywhere.
  void time() {
    while (timing_ != 0 && pick(10) < timing_) {
      switch (pick(8)) {
        case 0:
          tsc();
          break;
        case 1:
        case 2:
          trace_.mtc(static_cast<int>(ctc_ = (ctc_ + (one_in(9) ? pick(256) : 1)) & 0xff));
          break;
        default:
          trace_.cyc(pick(4096));
          break;
      }
    }
  }
  void tsc() {
    trace_.tsc(tsc_ += pick(1 << 20));
    if (one_in(3)) return;
    if (one_in(4)) trace_.mtc(static_cast<int>(ctc_));
    trace_.tma(static_cast<int>(one_in(2) ? pick(0x10000) : ctc_), static_cast<int>(pick(0x200)));
  }

  void psb_plus() {
    trace_.pad().psb();
    if (timing_ != 0 && !one_in(4)) tsc();
    if (one_in(2)) trace_.cbr(1 + static_cast<int>(pick(60)));
    if (one_in(2)) trace_.pip(random_() & 0xffff'ffe0, one_in(2));
    if (one_in(3)) trace_.vmcs(random_() & 0xfff'ffff'f000);
    if (one_in(4)) trace_.mnt(random_());
    if (one_in(4)) trace_.mode_tsx(static_cast<int>(pick(2)));
    if (one_in(2)) {
      if (mode_ < 0) mode_ = static_cast<int>(pick(3));
      trace_.mode_exec(mode_);
    }
    time();
    if (on_) trace_.fup(address());
    trace_.psbend();
  }

  void overflow() {
    trace_.ovf();
    mode_ = -1;
    time();
    if (apl11_ && one_in(3)) {
      on_ = false;
      trace_.pgd(address());
      return;
    }
    if (skd010_ && one_in(3)) {
      on_ = true;
      if (one_in(2)) trace_.pip(0xa000);
      if (one_in(3)) trace_.mode_tsx(1).fup(address());
      trace_.tip(address());
      return;
    }
    if (apl12_ && one_in(3)) {
      on_ = true;
      trace_.fup(address());
      time();
      trace_.pge(address());
      return;
    }
    on_ = one_in(2);
    if (on_) {
      trace_.fup(address());
    } else {
      one_in(2) ? psb_plus() : static_cast<void>(trace_.pip(0xa000));
    }
  }

  void anywhere() {
    const int small = static_cast<int>(pick(8));
    switch (pick(5)) {
      case 0:
        trace_.pwre(small, small + 1, one_in(2));
        break;
      case 1:
        trace_.pwrx(small, small + 2, 1 << small & 0xd);
        break;
      case 2:
        trace_.cbr(1 + small);
        break;
      case 3:
        trace_.mnt(random_());
        break;
      default:
        trace_.exstop(false);
        break;
    }
  }

  void mode_exec() {
    mode_ = static_cast<int>(pick(3));
    trace_.mode_exec(mode_);
  }

  void without_tracing() {
    switch (pick(5)) {
      case 0:
        trace_.pip(random_() & 0xffff'ffe0, one_in(2));
        break;
      case 1:
        trace_.vmcs(random_() & 0xffff'f000);
        break;
      case 2:
        trace_.mode_tsx(static_cast<int>(pick(3)));
        break;
      case 3:
        trace_.stop();
        break;
      default:
        if (one_in(2)) mode_exec();
        trace_.pge(address());
        on_ = true;
        break;
    }
  }

  // No timing within groups: libipt 2.0.5 gives their events the time of the first packet, libipt
  // 2.2 (and we) of the last.
  void to_ip_or_out() {
    if (one_in(4)) {
      on_ = false;
      one_in(2) ? trace_.pgd(address()) : trace_.pgd_no_ip();
    } else {
      trace_.tip(address());
    }
  }
  void own_fup() { trace_.fup(address()); }

  void with_tracing() {
    switch (pick(10)) {
      case 0:
        if (one_in(2)) mode_exec();
        trace_.tip(address());
        break;
      case 1:
        own_fup();
        if (one_in(2)) trace_.pip(random_() & 0xffff'ffe0, one_in(2));
        if (one_in(2)) trace_.vmcs(random_() & 0xffff'f000);
        to_ip_or_out();
        break;
      case 2:
        on_ = false;
        one_in(2) ? trace_.pgd(address()) : trace_.pgd_no_ip();
        break;
      case 3:
        trace_.mode_tsx(static_cast<int>(pick(2)));
        own_fup();
        break;
      case 4:
        trace_.mode_tsx(2);
        own_fup();
        to_ip_or_out();
        break;
      case 5:
        trace_.ptw(random_(), true);
        own_fup();
        break;
      case 6:
        trace_.ptw(random_(), false);
        break;
      case 7:
        // Without an IP, libipt 2.0.5 keeps the MWAIT for a later EXSTOP.
        trace_.mwait(pick(100), pick(100)).exstop(true);
        own_fup();
        break;
      default:
        for (uint32_t i = pick(4); i < 4; ++i) {
          trace_.tnt(std::string(1 + pick(6), one_in(2) ? 'T' : 'N'));
          time();
        }
        break;
    }
  }

  std::mt19937_64 random_;
  bool errata_;
  PacketBytes trace_;
  uint32_t timing_ = 0;
  uint64_t tsc_ = 0x1000;
  uint32_t ctc_ = 0;
  int mode_ = -1;
  bool skd010_ = false;
  bool apl11_ = false;
  bool apl12_ = false;
  bool on_ = one_in(2);
};

}  // namespace auxtrail::flow::test
