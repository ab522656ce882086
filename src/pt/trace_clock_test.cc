// The clock against what libipt's ptdump prints: the time, or the cycle ratio, at every timing
// packet of its own tests, and every complaint. And the errata against libipt's table.
#include "pt/trace_clock.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <intel-pt.h>

#include <array>
#include <regex>

#include "pt/packet_reader.h"
#include "pt/testing/ptt_cases.h"

namespace auxtrail::pt {
namespace {

const char* text_of(ClockStatus status) {
  switch (status) {
    case ClockStatus::kOk:
      return "OK";
    case ClockStatus::kImprecise:
      return "bad configuration";
    case ClockStatus::kBadPacket:
      return "unknown packet";
    case ClockStatus::kBadContext:
      return "unexpected packet context";
  }
  return "";
}

// ptdump as far as it tells the time: its lines without the packets.
class TimeDump {
 public:
  TimeDump(const test::PttArchive& archive, const test::PttCase& test)
      : test_(test),
        trace_(archive.bytes(test.base + ".pt")),
        config_(test::config_of(test)),
        rates_(config_) {}

  std::vector<std::string> run() {
    PacketReader reader(std::as_bytes(std::span(trace_)), config_.errata);
    Packet packet;
    while (reader.next(packet) == ReadStatus::kPacket) show(packet);
    return lines_;
  }

 private:
  void complain(const Packet& packet, std::string_view what, std::string_view why) {
    lines_.push_back(
        fmt::format("[{:x}: {}{}{}]", packet.offset, what, why.empty() ? "" : ": ", why));
  }
  void check(const Packet& packet, std::string_view what, ClockStatus status) {
    if (status != ClockStatus::kOk) complain(packet, what, text_of(status));
  }

  void show(const Packet& packet) {
    switch (packet.kind) {
      case PacketKind::kPsb:
        calibration_.psb(rates_);
        in_header_ = true;
        return;
      case PacketKind::kPsbEnd:
        in_header_ = false;
        return;
      case PacketKind::kOvf:
        if (config_.keep_calibration_on_overflow) {
          calibration_.overflow();
        } else {
          calibration_ = {};
        }
        return;
      case PacketKind::kCyc:
        if (!test_.has("--no-cyc")) cyc(packet);
        return;
      case PacketKind::kTsc:
      case PacketKind::kTma:
      case PacketKind::kMtc:
      case PacketKind::kCbr:
        if (!test_.has("--no-tcal")) check(packet, "error calibrating time", calibrate(packet));
        check(packet, "error updating time", update(packet));
        print(packet);
        return;
      default:
        return;
    }
  }

  ClockStatus calibrate(const Packet& packet) {
    const auto payload = static_cast<uint8_t>(packet.payload);
    switch (packet.kind) {
      case PacketKind::kTsc:
        if (in_header_) return calibration_.header_tsc(packet.payload);
        calibration_.tsc(packet.payload);
        return ClockStatus::kOk;
      case PacketKind::kCbr:
        return in_header_ ? calibration_.header_cbr(payload, rates_)
                          : calibration_.cbr(payload, rates_);
      case PacketKind::kMtc:
        return calibration_.mtc(payload, rates_);
      default:
        return ClockStatus::kOk;
    }
  }
  ClockStatus update(const Packet& packet) {
    switch (packet.kind) {
      case PacketKind::kTsc:
        time_.tsc(packet.payload);
        return ClockStatus::kOk;
      case PacketKind::kCbr:
        return time_.cbr(static_cast<uint8_t>(packet.payload));
      case PacketKind::kTma:
        return time_.tma(static_cast<uint16_t>(packet.payload), static_cast<uint16_t>(packet.extra),
                         rates_);
      default:
        return time_.mtc(static_cast<uint8_t>(packet.payload), rates_);
    }
  }
  void cyc(const Packet& packet) {
    uint64_t ratio = 0;
    if (!test_.has("--no-tcal")) {
      if (!calibration_.ratio(ratio)) {
        complain(packet, "calibration error", "no timing information");
      }
      calibration_.cyc(packet.payload);
    }
    const ClockStatus status = time_.cyc(packet.payload, ratio, rates_);
    check(packet, "error updating time", status);
    if (status == ClockStatus::kOk && ratio == 0) {
      complain(packet, "error updating time: no calibration", "");
    }
    print(packet);
  }

  void print(const Packet& packet) {
    const bool calibrates = packet.kind != PacketKind::kTma && packet.kind != PacketKind::kCyc;
    if (test_.has("--tcal") && calibrates) print_ratio(packet);
    if (test_.has("--time") && packet.kind != PacketKind::kCbr) print_time(packet);
  }
  void print_ratio(const Packet& packet) {
    uint64_t ratio = 0;
    if (!calibration_.ratio(ratio)) {
      complain(packet, "error printing time", "no timing information");
      return line(packet, "fcr", "<unavailable>");
    }
    const double unit = 1 << CycleCalibration::kRatioShift;
    const double value = static_cast<double>(ratio) / unit;
    line(packet, "fcr", fmt::format("{:+.3f}", value - last_ratio_));
    last_ratio_ = value;
  }
  void print_time(const Packet& packet) {
    ElapsedTime::Reading now;
    if (!time_.read(now) && !test_.has("--no-wall-clock")) {
      complain(packet, "error printing time", "no timing information");
      return line(packet, "tsc", "<unavailable>");
    }
    if (!test_.has("--time-delta")) return line(packet, "tsc", fmt::format("{:016x}", now.tsc));
    const bool later = last_tsc_ <= now.tsc;
    line(packet, "tsc",
         fmt::format("{}{:x}", later ? '+' : '-',
                     later ? now.tsc - last_tsc_ : last_tsc_ - now.tsc));
    last_tsc_ = now.tsc;
  }
  void line(const Packet& packet, std::string_view what, const std::string& value) {
    lines_.push_back(fmt::format("{:x} {} {}", packet.offset, what, value));
  }

  const test::PttCase& test_;
  std::vector<uint8_t> trace_;
  TraceConfig config_;
  ClockRates rates_;
  CycleCalibration calibration_;
  ElapsedTime time_;
  bool in_header_ = false;
  uint64_t last_tsc_ = 0;
  double last_ratio_ = 0;
  std::vector<std::string> lines_;
};

// The lines of an expected output that tell the time.
std::vector<std::string> times_in(const std::vector<std::string>& output) {
  const std::regex pattern(
      "0*([0-9a-f]+) .* (tsc|fcr) +([+-][0-9a-f.]+|[0-9a-f]{16}|<unavailable>)");
  std::vector<std::string> times;
  for (const std::string& line : output) {
    std::smatch match;
    if (line.starts_with("[")) {
      times.push_back(line);
    } else if (std::regex_match(line, match, pattern)) {
      times.push_back(match[1].str() + " " + match[2].str() + " " + match[3].str());
    }
  }
  return times;
}

TEST(TraceClock, TellsTheTimesOfLibiptsTests) {
  const test::PttArchive archive;
  if (archive.obstacle()) GTEST_SKIP() << *archive.obstacle();
  size_t cases = 0;
  size_t lines = 0;
  for (const test::PttCase& test : archive.cases("ptdump")) {
    if (!test.has("--time") && !test.has("--tcal")) continue;
    SCOPED_TRACE(test.name);
    const auto expected = times_in(test.expected);
    EXPECT_EQ(TimeDump(archive, test).run(), expected);
    ++cases;
    lines += expected.size();
  }
  EXPECT_GE(cases, 39);
  EXPECT_GE(lines, 250);
}

// The whole clock, as decoders use it: the same as its parts.
TEST(TraceClock, IsItsParts) {
  TraceConfig config{.mtc_freq = 4, .cpuid_0x15_eax = 1, .cpuid_0x15_ebx = 4};
  TraceClock clock(config);
  ElapsedTime::Reading now;
  EXPECT_FALSE(clock.time().read(now));
  clock.psb();
  EXPECT_EQ(clock.header_tsc(0xa0000), ClockStatus::kOk);
  EXPECT_EQ(clock.tma(0x102, 8), ClockStatus::kOk);
  EXPECT_EQ(clock.tma(0x102, 8), ClockStatus::kBadContext) << "one TMA for each TSC";
  clock.cyc(3);
  ASSERT_TRUE(clock.time().read(now));
  EXPECT_EQ(now.tsc, 0xa0000);
  EXPECT_EQ(now.lost_cyc, 1) << "not calibrated yet";
  EXPECT_EQ(clock.header_cbr(0), ClockStatus::kBadPacket);
  uint32_t ratio = 0;
  EXPECT_FALSE(clock.time().core_bus_ratio(ratio));
  EXPECT_EQ(clock.cbr(0x2a), ClockStatus::kOk);
  EXPECT_TRUE(clock.time().core_bus_ratio(ratio));
  EXPECT_EQ(ratio, 0x2a);
}

TEST(Errata, AreLibipts) {
  int known = 0;
  for (const uint16_t family : std::array<uint16_t, 4>{5, 6, 15, 16}) {
    for (int model = 0; model < 256; ++model) {
      pt_cpu cpu{};
      cpu.vendor = pcv_intel;
      cpu.family = family;
      cpu.model = static_cast<uint8_t>(model);
      pt_errata theirs{};
      if (pt_cpu_errata(&theirs, &cpu) < 0) continue;
      SCOPED_TRACE(fmt::format("{:x}/{:x}", family, model));
      Errata ours;
      const Cpu same = {.intel = true, .family = family, .model = static_cast<uint8_t>(model)};
      ASSERT_EQ(errata_of(same, ours), CpuKnowledge::kKnown);
      EXPECT_EQ(ours.bdm64, theirs.bdm64 != 0);
      EXPECT_EQ(ours.bdm70, theirs.bdm70 != 0);
      EXPECT_EQ(ours.skd007, theirs.skd007 != 0);
      EXPECT_EQ(ours.skd010, theirs.skd010 != 0);
      EXPECT_EQ(ours.skd022, theirs.skd022 != 0);
      EXPECT_EQ(ours.skl014, theirs.skl014 != 0);
      EXPECT_EQ(ours.skl168, theirs.skl168 != 0);
      EXPECT_EQ(ours.apl11, theirs.apl11 != 0);
      EXPECT_EQ(ours.apl12, theirs.apl12 != 0);
      ++known;
    }
  }
  EXPECT_GE(known, 15);
}

// The CPUs that the tests of a newer libipt name for each erratum.
TEST(Errata, AreThoseOfLibiptsTests) {
  const test::PttArchive archive;
  if (archive.obstacle()) GTEST_SKIP() << *archive.obstacle();
  const std::vector<std::pair<std::string, bool Errata::*>> flags = {
      {"apl11", &Errata::apl11},   {"apl12", &Errata::apl12},   {"bdm64", &Errata::bdm64},
      {"bdm70", &Errata::bdm70},   {"skd007", &Errata::skd007}, {"skd010", &Errata::skd010},
      {"skd022", &Errata::skd022}, {"skl014", &Errata::skl014}, {"skl168", &Errata::skl168},
      {"skz84", &Errata::skz84}};
  size_t checked = 0;
  for (const test::PttCase& test : archive.cases("ptdump")) {
    for (const auto& [erratum, flag] : flags) {
      if (!test.name.starts_with(erratum) || !test.cpu.intel) continue;
      Errata errata;
      EXPECT_EQ(errata_of(test.cpu, errata), CpuKnowledge::kKnown) << test.name;
      EXPECT_TRUE(errata.*flag) << test.name;
      ++checked;
    }
  }
  EXPECT_GE(checked, 150);
}

TEST(Errata, OfUnknownCpusAreTheHarmlessOnes) {
  Errata errata;
  EXPECT_EQ(errata_of({.intel = true, .family = 6, .model = 0xff}, errata), CpuKnowledge::kUnknown);
  EXPECT_EQ(errata, (Errata{.bdm70 = true, .skl014 = true, .skz84 = true, .apl11 = true}));
  EXPECT_EQ(errata_of({}, errata), CpuKnowledge::kNotIntel);
  EXPECT_EQ(errata, Errata{});
}

}  // namespace
}  // namespace auxtrail::pt
