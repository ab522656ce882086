// Recursion tens of thousands of frames deep, direct, mutual and through function pointers, over a
// large stack; and Ackermann and Takeuchi functions that do little else than call and return.
#include <pthread.h>

#include "check.h"

namespace {

using Step = uint64_t (*)(uint64_t, uint64_t);
uint64_t Even(uint64_t depth, uint64_t value);
uint64_t Odd(uint64_t depth, uint64_t value);
volatile Step g_steps[2] = {Even, Odd};

__attribute__((noinline)) uint64_t Even(uint64_t depth, uint64_t value) {
  if (depth == 0) return value;
  return g_steps[depth & 1](depth - 1, value * 3) + 1;
}

__attribute__((noinline)) uint64_t Odd(uint64_t depth, uint64_t value) {
  if (depth == 0) return value;
  return Even(depth - 1, value ^ depth) * 5;
}

__attribute__((noinline)) int Takeuchi(int x, int y, int z) {
  if (x <= y) return y;
  return Takeuchi(Takeuchi(x - 1, y, z), Takeuchi(y - 1, z, x), Takeuchi(z - 1, x, y));
}

__attribute__((noinline)) uint64_t Ackermann(uint64_t m, uint64_t n) {
  if (m == 0) return n + 1;
  if (n == 0) return Ackermann(m - 1, 1);
  return Ackermann(m - 1, Ackermann(m, n - 1));
}

void* OnLargeStack(void*) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 40; ++i) sum = sum * 31 + Even(500000 + i, i);
  std::printf("mutual %016llx\n", check::Llu(sum));
  std::printf("ackermann %llu\n", check::Llu(Ackermann(3, 9)));
  return nullptr;
}

}  // namespace

int main() {
  std::printf("takeuchi %d\n", Takeuchi(18, 12, 6) + Takeuchi(20, 12, 6));
  pthread_attr_t attributes;
  CHECK(pthread_attr_init(&attributes) == 0);
  CHECK(pthread_attr_setstacksize(&attributes, 256u << 20) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, &attributes, OnLargeStack, nullptr) == 0);
  CHECK(pthread_join(thread, nullptr) == 0);
  return 0;
}
