// The rarer half of the trace's clock: MTC, TMA, CBR and calibration.
#include "pt/trace_clock.h"

#include <algorithm>

namespace auxtrail::pt {
namespace {

constexpr uint8_t kMaxMtcFreq = 15;
constexpr uint32_t kTmaBits = 16;  // of the crystal clock's counter
constexpr uint32_t kTmaMask = (1u << kTmaBits) - 1;
constexpr uint32_t kMtcMask = 0xff;
constexpr uint64_t kTscPeriod = uint64_t{1} << 56;

// SKL168: the CYC that may be lost is the one sent when the CPU's cycle counter wraps, at 4096. A
// little less, since cycles per tick vary a little; and at long MTC periods it does not show.
constexpr uint64_t kLostCycles = 0xf00;
constexpr uint8_t kLongMtcFreq = 10;

}  // namespace

ClockRates::ClockRates(const TraceConfig& config)
    : mtc_freq(std::min(config.mtc_freq, kMaxMtcFreq)),
      nom_freq(config.nom_freq),
      skl168(config.errata.skl168),
      eax(config.cpuid_0x15_eax),
      ebx(config.cpuid_0x15_ebx) {}

uint32_t ClockRates::ticks_between(uint32_t last, uint32_t now) const {
  if (now < last) now += 1u << counter_bits();
  return now - last;
}

bool ClockRates::tsc_of(uint64_t ticks, uint64_t& tsc) const {
  if (eax == 0 || ebx == 0) return false;
  tsc = ticks * ebx / eax;
  return true;
}

void CycleCalibration::overflow() {
  tsc_ = 0;
  cycles_since_tsc_ = 0;
  cycles_since_mtc_ = 0;
  ticks_ = 0;
  have_mtc_ = false;
}

ClockStatus CycleCalibration::header_tsc(uint64_t tsc) {
  const uint64_t last_tsc = tsc_;
  const uint64_t cycles = cycles_since_tsc_;
  this->tsc(tsc);
  // MTCs are closer to each other, so they tell more.
  if (last_tsc == 0 || cycles == 0 || have_mtc_) return ClockStatus::kOk;
  if (tsc < last_tsc) tsc += kTscPeriod;
  set_ratio(((tsc - last_tsc) << kRatioShift) / cycles);
  return ClockStatus::kOk;
}

ClockStatus CycleCalibration::header_cbr(uint8_t core_bus_ratio, const ClockRates& rates) {
  if (rates.nom_freq == 0) return ClockStatus::kOk;
  if (core_bus_ratio == 0) return ClockStatus::kBadPacket;
  set_ratio((uint64_t{rates.nom_freq} << kRatioShift) / core_bus_ratio);
  return ClockStatus::kOk;
}

ClockStatus CycleCalibration::cbr(uint8_t core_bus_ratio, const ClockRates& rates) {
  // The frequency changed: what was learnt is void.
  *this = {};
  return header_cbr(core_bus_ratio, rates);
}

ClockStatus CycleCalibration::mtc(uint8_t ctc, const ClockRates& rates) {
  const uint32_t last_ticks = ticks_;
  const uint64_t cycles = cycles_since_mtc_;
  const bool check_skl168 = check_skl168_;
  const uint32_t ticks = rates.ticks_of_mtc(ctc);
  check_skl168_ = false;
  if (!have_mtc_) {
    have_mtc_ = true;
    cycles_since_mtc_ = 0;
    ticks_ = ticks;
    return ClockStatus::kOk;
  }
  // Without a CYC in between, the next MTC closes a longer period.
  if (cycles == 0) return ClockStatus::kOk;
  cycles_since_mtc_ = 0;
  ticks_ = ticks;

  const uint32_t passed = rates.ticks_between(last_ticks, ticks);
  uint64_t tsc = 0;
  if (!rates.tsc_of(passed, tsc)) return ClockStatus::kImprecise;
  if (check_skl168 && lost_cycles(tsc, passed, cycles, rates)) return ClockStatus::kOk;
  set_ratio((tsc << kRatioShift) / cycles);
  return ClockStatus::kOk;
}

bool CycleCalibration::lost_cycles(uint64_t tsc, uint32_t ticks, uint64_t cycles,
                                   const ClockRates& rates) const {
  // An MTC is missing, so a CYC may be.
  if (ticks > 1u << rates.mtc_freq) return true;
  if (rates.mtc_freq >= kLongMtcFreq || !have_ratio_) return false;
  return (ratio_ * (cycles + kLostCycles)) >> kRatioShift < tsc;
}

ClockStatus ElapsedTime::cbr(uint8_t core_bus_ratio) {
  if (core_bus_ratio == 0) return ClockStatus::kBadPacket;
  have_core_bus_ratio_ = true;
  core_bus_ratio_ = core_bus_ratio;
  return ClockStatus::kOk;
}

ClockStatus ElapsedTime::tma(uint16_t ctc, uint16_t fast_counter, const ClockRates& rates) {
  if (!have_tsc_ || have_tma_) return ClockStatus::kBadContext;
  have_tma_ = true;
  base_ -= fast_counter;
  since_base_ += fast_counter;
  // With MTCs rare enough, a TMA has too few bits to stand for one: the next MTC tells the others.
  have_mtc_ = rates.counter_bits() <= kTmaBits;
  ticks_ = cycle_ticks_ = ctc & ((1u << rates.counter_bits()) - 1);
  return ClockStatus::kOk;
}

ClockStatus ElapsedTime::mtc(uint8_t ctc, const ClockRates& rates) {
  // Between a TSC and its TMA the ticks at the TSC are not known yet.
  if (have_tsc_ && !have_tma_) return ClockStatus::kOk;

  const bool had_mtc = have_mtc_;
  uint32_t last_ticks = ticks_;
  const uint32_t ticks = rates.ticks_of_mtc(ctc);
  if (since_base_ != 0 || lost_cyc_ != 0 || !had_mtc) cycle_ticks_ = ticks;
  have_mtc_ = true;
  since_base_ = 0;
  ticks_ = ticks;
  lost_cyc_ = 0;

  if (!had_mtc) {
    // Where in this period the trace began, nobody knows.
    if (!have_tma_) return ClockStatus::kOk;
    // The TMA's upper bits are those of this MTC, or one less if the lower ones wrapped in between.
    uint32_t upper = ticks & ~kTmaMask;
    if ((ticks & kTmaMask) < last_ticks) {
      upper = (upper - (1u << kTmaBits)) & (kMtcMask << rates.mtc_freq);
    }
    last_ticks |= upper;
  }

  uint64_t passed = 0;
  if (!rates.tsc_of(rates.ticks_between(last_ticks, ticks), passed)) return ClockStatus::kImprecise;
  base_ += passed;
  tsc_ = base_;
  return ClockStatus::kOk;
}

bool ElapsedTime::forget_counted(uint64_t& cycles, uint64_t ratio, const ClockRates& rates) const {
  uint64_t tsc = 0;
  if (!rates.tsc_of(rates.ticks_between(cycle_ticks_, ticks_), tsc)) return false;
  const uint64_t counted = (tsc << CycleCalibration::kRatioShift) / ratio;
  // Rather too slow than too fast: time must not run ahead of the next MTC.
  cycles -= std::min(cycles, counted);
  return true;
}

}  // namespace auxtrail::pt
