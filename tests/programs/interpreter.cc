// A byte-code interpreter with computed goto, one with a switch and one with a table of functions:
// three ways to make nearly every branch indirect. All run the same program and must agree.
#include <vector>

#include "check.h"

namespace {

enum Op : uint8_t { kAdd, kXor, kShift, kMultiply, kSkipIfOdd, kDecrement, kLoop, kHalt };

struct Machine {
  uint64_t value = 1;
  uint64_t count = 0;
  size_t at = 0;
};

__attribute__((noinline)) uint64_t Goto(const std::vector<uint8_t>& code, uint64_t count) {
  static const void* const kLabels[] = {&&add,  &&exclusive, &&shift, &&multiply,
                                        &&skip, &&decrement, &&loop,  &&halt};
  Machine m{1, count, 0};
  const uint8_t* program = code.data();
  goto* kLabels[program[m.at++]];
add:
  m.value += m.at;
  goto* kLabels[program[m.at++]];
exclusive:
  m.value ^= m.count;
  goto* kLabels[program[m.at++]];
shift:
  m.value = (m.value << 7) | (m.value >> 57);
  goto* kLabels[program[m.at++]];
multiply:
  m.value *= 0x9e3779b97f4a7c15u;
  goto* kLabels[program[m.at++]];
skip:
  if ((m.value & 1) != 0) ++m.at;
  goto* kLabels[program[m.at++]];
decrement:
  --m.count;
  goto* kLabels[program[m.at++]];
loop:
  if (m.count != 0) m.at = 0;
  goto* kLabels[program[m.at++]];
halt:
  return m.value;
}

__attribute__((noinline)) uint64_t Switch(const std::vector<uint8_t>& code, uint64_t count) {
  Machine m{1, count, 0};
  while (true) {
    switch (static_cast<Op>(code[m.at++])) {
      case kAdd:
        m.value += m.at;
        break;
      case kXor:
        m.value ^= m.count;
        break;
      case kShift:
        m.value = (m.value << 7) | (m.value >> 57);
        break;
      case kMultiply:
        m.value *= 0x9e3779b97f4a7c15u;
        break;
      case kSkipIfOdd:
        m.at += m.value & 1;
        break;
      case kDecrement:
        --m.count;
        break;
      case kLoop:
        m.at = m.count != 0 ? 0 : m.at;
        break;
      case kHalt:
        return m.value;
    }
  }
}

using Handler = void (*)(Machine&);
volatile Handler g_handlers[] = {
    [](Machine& m) { m.value += m.at; },
    [](Machine& m) { m.value ^= m.count; },
    [](Machine& m) { m.value = (m.value << 7) | (m.value >> 57); },
    [](Machine& m) { m.value *= 0x9e3779b97f4a7c15u; },
    [](Machine& m) { m.at += m.value & 1; },
    [](Machine& m) { --m.count; },
    [](Machine& m) { m.at = m.count != 0 ? 0 : m.at; },
};

__attribute__((noinline)) uint64_t Table(const std::vector<uint8_t>& code, uint64_t count) {
  Machine m{1, count, 0};
  while (code[m.at] != kHalt) {
    const uint8_t op = code[m.at++];
    g_handlers[op](m);
  }
  return m.value;
}

std::vector<uint8_t> Program() {
  std::vector<uint8_t> code;
  uint64_t state = 4711;
  for (int i = 0; i < 60; ++i) {
    state = check::Next(state);
    code.push_back(static_cast<uint8_t>(state % 5));
    if (code.back() == kSkipIfOdd) code.push_back(kAdd);
  }
  code.insert(code.end(), {kDecrement, kLoop, kHalt});
  return code;
}

}  // namespace

int main() {
  const std::vector<uint8_t> code = Program();
  const uint64_t by_goto = Goto(code, 1200000);
  CHECK(Switch(code, 1200000) == by_goto);
  CHECK(Table(code, 1200000) == by_goto);
  std::printf("result %016llx\n", check::Llu(by_goto));
  return 0;
}
