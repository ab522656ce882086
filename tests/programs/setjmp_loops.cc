// setjmp and longjmp by the million, out of nested calls, and the unsafe-looking but legal uses: a
// jump from a callback of qsort, a chain of buffers, volatile locals that survive.
#include <setjmp.h>

#include <vector>

#include "check.h"

namespace {

jmp_buf g_buffers[8];
jmp_buf g_sort;

__attribute__((noinline)) int Deep(int depth, int target, int code) {
  if (depth == 0) longjmp(g_buffers[target], code);
  if (depth > 100) return depth;  // never, but the compiler cannot know
  return Deep(depth - 1, target, code) + 1;
}

__attribute__((noinline)) uint64_t Level(int level, uint64_t round) {
  volatile uint64_t local = round * 3 + static_cast<uint64_t>(level);
  const int code = setjmp(g_buffers[level]);
  if (code == 0) {
    local = local + 1;
    if (level == 7) {
      return static_cast<uint64_t>(Deep(static_cast<int>(round % 9), static_cast<int>(round % 8),
                                        static_cast<int>(round % 100) + 1));
    }
    return local + Level(level + 1, round);
  }
  return local + static_cast<uint64_t>(code) * 1000;
}

int Compare(const void* left, const void* right) {
  const uint64_t a = *static_cast<const uint64_t*>(left);
  const uint64_t b = *static_cast<const uint64_t*>(right);
  if ((a ^ b) % 61 == 0) longjmp(g_sort, 5);
  return a < b ? -1 : 1;
}

int SortAndLeave(uint64_t seed) {
  uint64_t values[200];
  for (uint64_t& value : values) value = seed = check::Next(seed);
  const int code = setjmp(g_sort);
  if (code != 0) return code;
  std::qsort(values, 200, sizeof values[0], Compare);
  return 0;
}

}  // namespace

int main() {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < 1500000; ++i) sum = sum * 31 + Level(0, i);
  int left = 0;
  for (uint64_t i = 1; i < 100000; ++i) left += SortAndLeave(i);
  std::printf("sum %016llx, left the sort %d\n", check::Llu(sum), left);
  return 0;
}
