// ScriptedUnit: an Intel PT trace unit for tests. It has the registers, walks the output tables and
// writes to the AUX area as the hardware does, and calls back around every register access, where a
// test may interrupt.
//
// What it writes is a pattern in which every position shows (pt_pattern). What real units answer
// with a general protection fault is counted in `faults`. Without `keep_log` it allocates nothing,
// so that it may be stepped through and interrupted anywhere.
#pragma once

#include <cstring>
#include <functional>
#include <vector>

#include "event/aux_area.h"
#include "pmu/topa.h"
#include "pmu/trace_unit.h"

namespace auxtrail::pmu::testing {

// The value of the byte that the unit writes at position `at` of all it ever wrote.
inline std::byte pt_pattern(uint64_t at) { return static_cast<std::byte>(at % 251 + 1); }

class ScriptedUnit {
 public:
  struct Access {
    bool is_write;
    PtRegister which;
    uint64_t value;
  };

  explicit ScriptedUnit(const abi::PtCaps& caps) : caps_(caps) {}
  ScriptedUnit(const ScriptedUnit&) = delete;
  ScriptedUnit& operator=(const ScriptedUnit&) = delete;

  TraceUnit unit() {
    return {.self = this,
            .read = [](void* self, PtRegister which) { return of(self).read(which); },
            .write = [](void* self, PtRegister which, uint64_t v) { of(self).write(which, v); },
            .caps = caps_};
  }

  // Traces `count` bytes, as far as the unit is on and stays on.
  void trace(uint64_t count) {
    for (; count > 0 && on(); --count) put(pt_pattern(total++));
    deliver_interrupt();
  }
  // The same without touching the area: only the position moves, region by region.
  void skip(uint64_t count) {
    while (count > 0 && on()) {
      const uint64_t left = region_bytes() - output_offset();
      const uint64_t part = count < left ? count : left;
      total += part;
      count -= part;
      advance(part);
    }
    deliver_interrupt();
  }
  // VMXON switches tracing off, without a write to a register.
  void vmxon() { set(PtRegister::kCtl, get(PtRegister::kCtl) & ~rtit_ctl::kTraceEn), update(); }

  [[nodiscard]] bool on() const {
    return (get(PtRegister::kStatus) & rtit_status::kTriggerEn) != 0;
  }
  [[nodiscard]] uint64_t get(PtRegister which) const { return registers_[index_of(which)]; }
  void set(PtRegister which, uint64_t value) { registers_[index_of(which)] = value; }

  uint64_t total = 0;        // bytes traced so far
  uint64_t flush_bytes = 0;  // bytes that a stop pushes out of the unit's own buffers
  bool emits_psb = false;    // where PacketByteCnt is 0 when tracing begins
  bool keep_log = true;
  std::vector<Access> log;
  int faults = 0;  // configured while TraceEn
  std::function<void(const Access&)> before, after;
  std::function<void()> interrupt;

 private:
  static constexpr size_t index_of(PtRegister which) {
    return static_cast<size_t>(which) - static_cast<size_t>(PtRegister::kOutputBase);
  }
  static ScriptedUnit& of(void* self) { return *static_cast<ScriptedUnit*>(self); }

  uint64_t read(PtRegister which) {
    call(before, {false, which, get(which)});
    const uint64_t value = get(which);
    keep({false, which, value});
    call(after, {false, which, value});
    return value;
  }
  void write(PtRegister which, uint64_t value) {
    call(before, {true, which, value});
    const uint64_t old = get(which);
    const bool enabled = (get(PtRegister::kCtl) & rtit_ctl::kTraceEn) != 0;
    if (enabled && (which != PtRegister::kCtl || ((old ^ value) & ~rtit_ctl::kTraceEn) != 0)) {
      ++faults;
    }
    if (which == PtRegister::kCtl && enabled && (value & rtit_ctl::kTraceEn) == 0)
      trace(flush_bytes);
    set(which, which == PtRegister::kStatus ? value & ~rtit_status::kTriggerEn : value);
    keep({true, which, value});
    if (which == PtRegister::kCtl || which == PtRegister::kStatus) update();
    call(after, {true, which, value});
  }
  static void call(const std::function<void(const Access&)>& function, const Access& access) {
    if (function) function(access);
  }

  void keep(const Access& access) {
    if (keep_log) log.push_back(access);
  }

  // TriggerEn follows from TraceEn, unless the output has come to an end.
  void update() {
    constexpr uint64_t kEnded = rtit_status::kError | rtit_status::kStopped;
    uint64_t status = get(PtRegister::kStatus);
    const bool was_on = on();
    const bool is_on = (get(PtRegister::kCtl) & rtit_ctl::kTraceEn) != 0 && (status & kEnded) == 0;
    status = is_on ? status | rtit_status::kTriggerEn : status & ~rtit_status::kTriggerEn;
    set(PtRegister::kStatus, status);
    if (is_on && !was_on && emits_psb && (status & rtit_status::kPacketByteCnt) == 0) {
      for (int i = 0; i < 8; ++i) put(std::byte{0x02}), put(std::byte{0x82});
    }
  }

  [[nodiscard]] bool uses_tables() const { return (get(PtRegister::kCtl) & rtit_ctl::kToPA) != 0; }
  [[nodiscard]] uint64_t output_offset() const { return get(PtRegister::kOutputMaskPtrs) >> 32; }
  [[nodiscard]] uint64_t table_index() const {
    return (get(PtRegister::kOutputMaskPtrs) & 0xffffffff) >> 7;
  }
  [[nodiscard]] const uint64_t* entry() const {
    return reinterpret_cast<const uint64_t*>(get(PtRegister::kOutputBase)) + table_index();
  }
  [[nodiscard]] uint64_t region_bytes() const {
    return uses_tables() ? topa::size_of(*entry())
                         : (get(PtRegister::kOutputMaskPtrs) & 0xffffffff) + 1;
  }
  void set_output(uint64_t base, uint64_t low, uint64_t offset) {
    set(PtRegister::kOutputBase, base);
    set(PtRegister::kOutputMaskPtrs, (low & 0xffffffff) | 0x7f | offset << 32);
  }

  void put(std::byte value) {
    const uint64_t base = uses_tables() ? topa::base_of(*entry()) : get(PtRegister::kOutputBase);
    if (uses_tables() && (*entry() & topa::kEnd) != 0) return stop_with(rtit_status::kError);
    reinterpret_cast<std::byte*>(base)[output_offset()] = value;
    advance(1);
  }

  // `count` bytes, at most to the region's end, are written.
  void advance(uint64_t count) {
    const uint64_t status = get(PtRegister::kStatus);
    const uint64_t counted = ((status & rtit_status::kPacketByteCnt) >> 32) + count;
    set(PtRegister::kStatus,
        (status & ~rtit_status::kPacketByteCnt) | (counted << 32 & rtit_status::kPacketByteCnt));
    const uint64_t size = region_bytes();
    const uint64_t low = get(PtRegister::kOutputMaskPtrs);
    const uint64_t offset = output_offset() + count;
    const uint64_t base = get(PtRegister::kOutputBase);
    const bool one_region = uses_tables() && !caps_.topa_multiple_entries;
    if (one_region && (*entry() & topa::kInt) != 0 && size - offset < kInterruptLead)
      pending_ = true;
    if (offset < size) return set_output(base, low, offset);
    if (!uses_tables()) return set_output(base, low, 0);
    if ((*entry() & topa::kInt) != 0) pending_ = true;
    if ((*entry() & topa::kStop) != 0) {
      set_output(base, low, offset);
      return stop_with(rtit_status::kStopped);
    }
    const uint64_t next = entry()[1];
    if ((next & topa::kEnd) != 0) return set_output(topa::base_of(next), 0, 0);
    set_output(base, (table_index() + 1) << 7, 0);
  }
  void stop_with(uint64_t status) {
    set(PtRegister::kStatus, get(PtRegister::kStatus) | status);
    update();
  }
  void deliver_interrupt() {
    if (!pending_) return;
    pending_ = false;
    if (interrupt) interrupt();
  }

  static constexpr uint64_t kInterruptLead = 256;  // before the region's end
  abi::PtCaps caps_;
  uint64_t registers_[48] = {};
  bool pending_ = false;
};

}  // namespace auxtrail::pmu::testing
