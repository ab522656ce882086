// ScriptedUnit: a trace unit for tests. It writes whatever it is told into the AUX area, in place,
// as the hardware does, and calls back where a test wants to interrupt.
#pragma once

#include <cstring>
#include <functional>
#include <string>

#include "event/aux_area.h"
#include "pmu/trace_unit.h"

namespace auxtrail::pmu::testing {

class ScriptedUnit {
 public:
  explicit ScriptedUnit(std::byte* aux, uint64_t aux_bytes) : aux_(aux), size_(aux_bytes) {}

  TraceUnit unit() {
    return {.self = this,
            .configure = [](void* self, uint64_t config) { of(self).configure(config); },
            .start = [](void* self) { of(self).start(); },
            .stop = [](void* self) { of(self).stop(); },
            .running = [](void* self) { return of(self).on; },
            .output = [](void* self) { return of(self).output(); }};
  }

  // Traces `count` bytes if the unit is on: the values continue a pattern that shows every
  // position.
  void trace(uint64_t count) {
    if (!on) return;
    for (; count > 0; --count) {
      aux_[total % size_] = static_cast<std::byte>(total % 251 + 1);
      ++total;
    }
  }

  bool on = false;
  uint64_t total = 0;        // bytes traced so far
  uint64_t flush_bytes = 0;  // bytes that a stop pushes out of the unit's own buffers
  uint64_t config_value = 0;
  std::string log;  // c = configured, s = started, t = stopped
  std::function<void()> before_stop, after_stop, before_start;

 private:
  static ScriptedUnit& of(void* self) { return *static_cast<ScriptedUnit*>(self); }
  void configure(uint64_t config) {
    config_value = config;
    log += 'c';
  }
  void start() {
    if (before_start) before_start();
    on = true;
    log += 's';
  }
  void stop() {
    if (before_stop) before_stop();
    trace(flush_bytes);
    on = false;
    log += 't';
    if (after_stop) after_stop();
  }
  OutputPosition output() {
    const bool lapped = total - reported_ >= size_;
    reported_ = total;
    return {total % size_, lapped};
  }
  std::byte* aux_;
  uint64_t size_;
  uint64_t reported_ = 0;
};

}  // namespace auxtrail::pmu::testing
