// Coroutines by makecontext and swapcontext on stacks of 8 KiB, and setcontext in a loop: the stack
// pointer jumps between areas of the heap, returns go to places that no call on that stack made.
#include <ucontext.h>

#include <memory>
#include <vector>

#include "check.h"

namespace {

constexpr size_t kStackBytes = 8192;

struct Coroutine {
  ucontext_t context{};
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  uint64_t value = 0;
  bool done = false;
};

ucontext_t g_main;
std::vector<Coroutine>* g_all = nullptr;

__attribute__((noinline)) void Yield(Coroutine& self) {
  CHECK(swapcontext(&self.context, &g_main) == 0);
}

__attribute__((noinline)) uint64_t Recurse(Coroutine& self, int depth) {
  if (depth == 0) {
    Yield(self);
    return check::Burn(self.value, 30);
  }
  return Recurse(self, depth - 1) + static_cast<uint64_t>(depth);
}

void Body(unsigned index) {
  Coroutine& self = (*g_all)[index];
  for (int i = 0; i < 6000; ++i)
    self.value += Recurse(self, static_cast<int>(index % 5)) & 0xffffff;
  self.done = true;
}

uint64_t SetcontextLoop(int rounds) {
  ucontext_t again;
  volatile int count = 0;
  volatile uint64_t sum = 0;
  CHECK(getcontext(&again) == 0);
  count = count + 1;
  sum = sum + (check::Burn(static_cast<uint64_t>(count), 20) & 0xff);
  if (count < rounds) setcontext(&again);
  return sum;
}

}  // namespace

int main() {
  std::vector<Coroutine> all(32);
  g_all = &all;
  for (unsigned i = 0; i < all.size(); ++i) {
    Coroutine& one = all[i];
    one.value = i;
    CHECK(getcontext(&one.context) == 0);
    one.context.uc_stack.ss_sp = one.stack.get();
    one.context.uc_stack.ss_size = kStackBytes;
    one.context.uc_link = &g_main;
    makecontext(&one.context, reinterpret_cast<void (*)()>(Body), 1, i);
  }
  size_t live = all.size();
  uint64_t switches = 0;
  while (live > 0) {
    for (Coroutine& one : all) {
      if (one.done) continue;
      CHECK(swapcontext(&g_main, &one.context) == 0);
      ++switches;
      if (one.done) --live;
    }
  }
  uint64_t sum = 0;
  for (const Coroutine& one : all) sum += one.value;
  std::printf("sum %llu, switches %llu\n", check::Llu(sum), check::Llu(switches));
  std::printf("setcontext %llu\n", check::Llu(SetcontextLoop(200000)));
  return 0;
}
