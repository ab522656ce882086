// Random numbers for generated cases: fast, and the same everywhere for the same seed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace auxtrail::decode::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {  // splitmix64
    uint64_t value = state_ += 0x9e3779b97f4a7c15;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    return value ^ value >> 31;
  }
  // 0 <= result < bound; bound > 0.
  size_t below(size_t bound) { return static_cast<size_t>((next() >> 32) * bound >> 32); }
  // low <= result <= high.
  size_t between(size_t low, size_t high) { return low + below(high - low + 1); }
  bool one_in(size_t count) { return below(count) == 0; }
  bool percent(size_t chance) { return below(100) < chance; }

 private:
  uint64_t state_;
};

}  // namespace auxtrail::decode::testing
