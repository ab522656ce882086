// Nearly all time goes into divisions without a branch, nearly all trace packets into the indirect
// calls between them: what tells apart where the time goes from where the packets come from.
#include "check.h"

namespace {

#define DIVIDE value = 0xfffffffffffffffUL / (value | 3) + 12345;
#define DIVIDE_10 DIVIDE DIVIDE DIVIDE DIVIDE DIVIDE DIVIDE DIVIDE DIVIDE DIVIDE DIVIDE

}  // namespace

extern "C" {
__attribute__((noinline)) uint64_t Divisions(uint64_t value) {
  DIVIDE_10 DIVIDE_10 DIVIDE_10 DIVIDE_10 DIVIDE_10 DIVIDE_10 return value;
}
__attribute__((noinline)) uint64_t Little(uint64_t value) { return value * 3 + 1; }
__attribute__((noinline)) uint64_t Less(uint64_t value) { return value * 5 + 1; }
}

int main() {
  using Function = uint64_t (*)(uint64_t);
  volatile Function functions[] = {Little, Less};
  uint64_t value = 7;
  for (int i = 0; i < 1000000; ++i) {
    value = Divisions(value);
    for (int call = 0; call < 6; ++call) value = functions[call % 2](value);
  }
  std::printf("%llu\n", check::Llu(value));
  return 0;
}
