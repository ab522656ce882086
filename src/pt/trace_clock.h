// TraceClock: what time it is in a trace.
//
// The clock is the TSC. A TSC packet tells it; from there MTC packets count crystal clock ticks
// (the TMA packet behind a TSC says where between two ticks it was), and CYC packets count core
// cycles since the last tick. How many TSC ticks a core cycle is worth, the *cycle ratio*, has to
// be found out: from the cycles between two MTCs, else between the TSCs of two PSB+, else from the
// core:bus ratio of CBR packets and the nominal frequency.
//
// Rounds, estimates and loses time exactly as libipt's pt_time and pt_tcal do, for the two decoders
// are compared time by time. Reference: Intel SDM vol. 3, "Intel Processor Trace", the sections
// about timing packets; the CPUID leaf 15H. Thread safety: none; a clock is a value and may be
// copied. Nothing allocates.
#pragma once

#include <cstdint>

#include "pt/trace_config.h"

namespace auxtrail::pt {

enum class ClockStatus : uint8_t {
  kOk,
  // The configuration lacks a number that this packet needs: time goes on without it. No error.
  kImprecise,
  kBadPacket,   // an impossible number
  kBadContext,  // a TMA without a TSC, or a second one
};

// The numbers of a TraceConfig that turn ticks into time.
struct ClockRates {
  ClockRates() = default;
  explicit ClockRates(const TraceConfig& config);

  // Crystal clock ticks from `last` to `now`, both cut to what an MTC tells; one wrap is corrected.
  [[nodiscard]] uint32_t ticks_between(uint32_t last, uint32_t now) const;
  // Crystal clock ticks as TSC ticks; false if the configuration does not tell.
  bool tsc_of(uint64_t ticks, uint64_t& tsc) const;
  [[nodiscard]] uint32_t ticks_of_mtc(uint8_t ctc) const { return uint32_t{ctc} << mtc_freq; }
  // How many bits of the crystal clock's counter an MTC tells, counted from bit 0.
  [[nodiscard]] uint32_t counter_bits() const { return mtc_freq + 8u; }

  uint8_t mtc_freq = 0;  // at most 15: the field has four bits
  uint8_t nom_freq = 0;
  bool skl168 = false;
  uint32_t eax = 0;
  uint32_t ebx = 0;
};

// The cycle ratio, learnt from what the packets say.
class CycleCalibration {
 public:
  static constexpr unsigned kRatioShift = 8;  // ratios are fixed point numbers

  // TSC ticks per core cycle, times 2^kRatioShift; false if nothing is known yet.
  bool ratio(uint64_t& value) const {
    value = ratio_;
    return have_ratio_;
  }

  void psb(const ClockRates& rates) { check_skl168_ |= rates.skl168; }
  // Packets were lost, but not what was learnt.
  void overflow();

  ClockStatus header_tsc(uint64_t tsc);  // in a PSB+
  void tsc(uint64_t tsc) {               // elsewhere: time may have been lost before it
    tsc_ = tsc;
    cycles_since_tsc_ = 0;
  }
  ClockStatus header_cbr(uint8_t core_bus_ratio, const ClockRates& rates);
  ClockStatus cbr(uint8_t core_bus_ratio, const ClockRates& rates);
  ClockStatus mtc(uint8_t ctc, const ClockRates& rates);
  void cyc(uint64_t cycles) {
    cycles_since_mtc_ += cycles;
    cycles_since_tsc_ += cycles;
  }

 private:
  void set_ratio(uint64_t ratio) {
    ratio_ = ratio;
    have_ratio_ = true;
  }
  // Whether the cycles since the last MTC are too few for `tsc` ticks, as erratum SKL168 makes
  // them.
  [[nodiscard]] bool lost_cycles(uint64_t tsc, uint32_t ticks, uint64_t cycles,
                                 const ClockRates& rates) const;

  uint64_t ratio_ = 0;
  uint64_t tsc_ = 0;
  uint64_t cycles_since_tsc_ = 0;
  uint64_t cycles_since_mtc_ = 0;
  uint32_t ticks_ = 0;  // at the last MTC
  bool have_ratio_ = false;
  bool have_mtc_ = false;
  bool check_skl168_ = false;  // at the next MTC
};

// The time itself. `ratio` is the cycle ratio, 0 if unknown.
class ElapsedTime {
 public:
  struct Reading {
    uint64_t tsc = 0;
    uint32_t lost_mtc = 0;  // how many packets the time lacks: a hint at how exact it is
    uint32_t lost_cyc = 0;
  };

  // False, with the time since the beginning, if there was no TSC packet yet.
  bool read(Reading& reading) const {
    reading = {tsc_, lost_mtc_, lost_cyc_};
    return have_tsc_;
  }
  // False before the first CBR packet.
  bool core_bus_ratio(uint32_t& ratio) const {
    ratio = core_bus_ratio_;
    return have_core_bus_ratio_;
  }

  void tsc(uint64_t tsc) {
    tsc_ = base_ = tsc;
    have_tsc_ = true;
    have_tma_ = have_mtc_ = false;
    ticks_ = 0;
    since_base_ = 0;
    lost_mtc_ = lost_cyc_ = 0;
  }
  ClockStatus cbr(uint8_t core_bus_ratio);
  // A failing TMA changes nothing.
  ClockStatus tma(uint16_t ctc, uint16_t fast_counter, const ClockRates& rates);
  ClockStatus mtc(uint8_t ctc, const ClockRates& rates);
  ClockStatus cyc(uint64_t cycles, uint64_t ratio, const ClockRates& rates) {
    if (ratio == 0) {
      ++lost_cyc_;
      return ClockStatus::kOk;
    }
    if (since_base_ == 0 && ticks_ != cycle_ticks_ && !forget_counted(cycles, ratio, rates)) {
      return ClockStatus::kImprecise;
    }
    since_base_ += (cycles * ratio) >> CycleCalibration::kRatioShift;
    tsc_ = base_ + since_base_;
    return ClockStatus::kOk;
  }

 private:
  // Takes from `cycles` those that MTCs have counted already; false without the rates for it.
  bool forget_counted(uint64_t& cycles, uint64_t ratio, const ClockRates& rates) const;

  uint64_t tsc_ = 0;
  uint64_t base_ = 0;         // at the last TSC or MTC
  uint64_t since_base_ = 0;   // TSC ticks, from CYCs
  uint32_t ticks_ = 0;        // of the crystal clock, at the last MTC or TMA
  uint32_t cycle_ticks_ = 0;  // the same at the last one that CYCs were counted to
  uint32_t lost_mtc_ = 0;
  uint32_t lost_cyc_ = 0;
  bool have_tsc_ = false;
  bool have_tma_ = false;
  bool have_mtc_ = false;
  bool have_core_bus_ratio_ = false;
  uint8_t core_bus_ratio_ = 0;
};

// A point of a trace in time.
struct Moment {
  uint64_t tsc = 0;     // TSC ticks; without has_tsc since the beginning of the trace
  uint64_t cycles = 0;  // core cycles that CYC packets told so far; 0: none came yet
  bool has_tsc = false;
  bool operator==(const Moment&) const = default;
};

// Time and calibration together: feed it every timing packet, in order.
class TraceClock {
 public:
  TraceClock() = default;
  explicit TraceClock(const TraceConfig& config)
      : rates_(config), keep_calibration_(config.keep_calibration_on_overflow) {}

  // What moment() counts goes on.
  void reset() {
    time_ = {};
    calibration_ = {};
  }
  void psb() { calibration_.psb(rates_); }
  // Packets were lost; the time stays what it was.
  void overflow() {
    if (keep_calibration_) {
      calibration_.overflow();
    } else {
      calibration_ = {};
    }
  }

  // Packets within a PSB+.
  ClockStatus header_tsc(uint64_t tsc) {
    const ClockStatus status = calibration_.header_tsc(tsc);
    if (status == ClockStatus::kOk) time_.tsc(tsc);
    return status;
  }
  ClockStatus header_cbr(uint8_t ratio) {
    const ClockStatus status = calibration_.header_cbr(ratio, rates_);
    return status == ClockStatus::kOk ? time_.cbr(ratio) : status;
  }
  // Packets elsewhere; TMA, MTC and CYC mean the same in a PSB+.
  void tsc(uint64_t tsc) {
    calibration_.tsc(tsc);
    time_.tsc(tsc);
  }
  ClockStatus cbr(uint8_t ratio) {
    const ClockStatus status = calibration_.cbr(ratio, rates_);
    return status == ClockStatus::kOk ? time_.cbr(ratio) : status;
  }
  ClockStatus tma(uint16_t ctc, uint16_t fast_counter) {
    return time_.tma(ctc, fast_counter, rates_);
  }
  // Both never fail.
  void mtc(uint8_t ctc) {
    calibration_.mtc(ctc, rates_);
    time_.mtc(ctc, rates_);
  }
  void cyc(uint64_t cycles) {
    uint64_t ratio = 0;
    cycles_ += cycles;
    calibration_.cyc(cycles);
    calibration_.ratio(ratio);
    time_.cyc(cycles, ratio, rates_);
  }

  [[nodiscard]] const ElapsedTime& time() const { return time_; }
  [[nodiscard]] const CycleCalibration& calibration() const { return calibration_; }
  // The trace before had so many cycles.
  void count_from(uint64_t cycles) { cycles_ = cycles; }
  // When the packet fed last was written.
  [[nodiscard]] Moment moment() const {
    ElapsedTime::Reading reading;
    const bool has_tsc = time_.read(reading);
    return {reading.tsc, cycles_, has_tsc};
  }

 private:
  ClockRates rates_;
  ElapsedTime time_;
  CycleCalibration calibration_;
  uint64_t cycles_ = 0;
  bool keep_calibration_ = false;
};

}  // namespace auxtrail::pt
