// The library of tls_library: thread-local data, with a constructor and a destructor, that is
// loaded late.
#include <cstdint>

namespace {
struct Local {
  uint64_t values[64] = {1};
  ~Local() { values[0] = 0; }
};
thread_local Local t_local;
thread_local uint64_t t_plain = 17;
}  // namespace

extern "C" uint64_t TlsStep(uint64_t seed) {
  t_plain = t_plain * 31 + seed;
  t_local.values[seed % 64] += t_plain;
  return t_local.values[(seed * 7) % 64] ^ t_plain;
}
