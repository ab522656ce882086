// ScriptedBtsUnit: the branch trace store of a CPU, for tests. It writes the n-th branch as the
// record {n, n + 1, 16}, and calls back around every write of DEBUGCTL.
#pragma once

#include <cstring>
#include <functional>

#include "pmu/bts_unit.h"

namespace auxtrail::pmu::testing {

struct BtsRecord {
  uint64_t from, to, flags;
  bool operator==(const BtsRecord&) const = default;
};
inline BtsRecord bts_record(uint64_t number) { return {number, number + 1, 16}; }

class ScriptedBtsUnit {
 public:
  BtsUnit unit() {
    return {.self = this, .ds = &ds, .control = [](void* self, uint64_t bits) {
              static_cast<ScriptedBtsUnit*>(self)->control(bits);
            }};
  }

  // Takes `count` branches: stored as far as tracing is on and there is room.
  void branches(uint64_t count) {
    for (; count > 0; --count) {
      if (on()) store(bts_record(++total));
    }
    if (on() && (bits_ & debugctl::kBtint) != 0 && ds.bts_index >= ds.bts_interrupt_threshold &&
        interrupt) {
      interrupt();
    }
  }
  [[nodiscard]] bool on() const { return (bits_ & debugctl::kBts) != 0; }
  [[nodiscard]] uint64_t bits() const { return bits_; }

  DebugStore ds;
  uint64_t total = 0;    // branches while tracing was on
  uint64_t dropped = 0;  // of them, those that found no room
  std::function<void(uint64_t bits)> before, after;
  std::function<void()> interrupt;

 private:
  void control(uint64_t bits) {
    if (before) before(bits);
    bits_ = bits;
    if (after) after(bits);
  }
  void store(const BtsRecord& record) {
    if (ds.bts_index + kBtsRecordBytes > ds.bts_absolute_maximum) {
      ++dropped;
      return;
    }
    std::memcpy(reinterpret_cast<void*>(ds.bts_index), &record, sizeof record);
    ds.bts_index += kBtsRecordBytes;
    const bool circular = (bits_ & debugctl::kBtint) == 0;
    if (circular && ds.bts_index == ds.bts_absolute_maximum) ds.bts_index = ds.bts_buffer_base;
  }
  uint64_t bits_ = 0;
};

}  // namespace auxtrail::pmu::testing
