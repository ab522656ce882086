// One plugin of dlopen_loop, built several times with another PLUGIN_SEED: same size, same symbols,
// same places, other code.
#include <cstdint>

#ifndef PLUGIN_SEED
#error PLUGIN_SEED must be defined
#endif

extern "C" uint64_t PluginStep(uint64_t value) {
  if ((value & 1) != 0) return value * 3 + PLUGIN_SEED;
  return (value >> 1) + PLUGIN_SEED;
}

extern "C" uint64_t PluginRun(uint64_t value, uint64_t rounds) {
  for (uint64_t i = 0; i < rounds; ++i) {
    if ((value >> (PLUGIN_SEED & 7) & 1) != 0) {
      value = PluginStep(value ^ i);
    } else {
      value += value * PLUGIN_SEED;
    }
  }
  return value;
}
