// A program whose call stacks are known: leaf is called by middle only, middle by outer, outer by
// main. Never finished long: the loops are short, so that a history spans many calls.
#include <cstdio>

namespace {

volatile unsigned long sum;

}  // namespace

extern "C" {

[[gnu::noinline]] void nested_leaf(unsigned rounds) {
  for (unsigned i = 0; i < rounds; ++i) sum = sum + (i & 3 ? i : sum >> 3);
  asm volatile("");  // no tail call
}

[[gnu::noinline]] void nested_middle(unsigned rounds) {
  for (unsigned i = 0; i < 3; ++i) nested_leaf(rounds + i);
  asm volatile("");
}

[[gnu::noinline]] void nested_outer(unsigned rounds) {
  nested_middle(rounds);
  nested_middle(rounds + 1);
  asm volatile("");
}
}

int main() {
  for (unsigned i = 0; i < 1'500'000; ++i) nested_outer(i % 16);
  std::printf("%lu\n", sum);
}
