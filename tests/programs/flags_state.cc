// Flags that live across branches: every arithmetic flag set before a jump, a call, an indirect
// jump, a return or a loop instruction, and read after it; the direction flag set by std over
// branches and string instructions; the flags word as pushf sees it. Instrumentation must not show
// in any of them.
#include "check.h"

namespace {

// Puts `flags` (the six arithmetic flags) into EFLAGS, passes all kinds of branches, returns the
// flags seen after.
extern "C" uint64_t FlagsAcross(uint64_t flags, uint64_t kind);
asm(R"(
    .text
    .globl FlagsAcross
    .type FlagsAcross, @function
FlagsAcross:
    push %rbx
    lea Kinds(%rip), %rax
    movslq (%rax,%rsi,4), %rdx
    add %rax, %rdx
    pushfq
    andq $~0x8d5, (%rsp)
    orq %rdi, (%rsp)
    lea Target(%rip), %rbx
    mov $1, %ecx
    popfq
    jmp *%rdx
DirectJump:
    jmp Target
IndirectJump:
    jmp *%rbx
MemoryJump:
    jmp *TargetPointer(%rip)
DirectCall:
    call Leaf
    jmp Target
IndirectCall:
    lea Leaf(%rip), %rbx
    call *%rbx
    jmp Target
MemoryCall:
    call *LeafPointer(%rip)
    jmp Target
PushReturn:
    push %rbx
    ret
JrcxzNot:
    jrcxz Bad
    jmp Target
JrcxzTaken:
    mov $0, %ecx
    jrcxz Target
    jmp Bad
LoopFall:
    loop Bad
    jmp Target
LoopTaken:
    mov $2, %ecx
    loop Target
    jmp Bad
Conditionals:
    jc 1f
1:  jz 1f
1:  js 1f
1:  jo 1f
1:  jp 1f
1:  jbe 1f
1:  jl 1f
1:  jle 1f
1:  jmp Target
Leaf:
    ret
Bad:
    mov $-1, %rax
    pop %rbx
    ret
Target:
    pushfq
    pop %rax
    pop %rbx
    ret
    .size FlagsAcross, .-FlagsAcross
    .section .rodata
    .p2align 2
Kinds:
    .long DirectJump - Kinds, IndirectJump - Kinds, MemoryJump - Kinds, DirectCall - Kinds
    .long IndirectCall - Kinds, MemoryCall - Kinds, PushReturn - Kinds, JrcxzNot - Kinds
    .long JrcxzTaken - Kinds, LoopFall - Kinds, LoopTaken - Kinds, Conditionals - Kinds
    .section .data.rel, "aw"
    .p2align 3
TargetPointer:
    .quad Target
LeafPointer:
    .quad Leaf
    .text
)");

constexpr uint64_t kKinds = 12;
constexpr uint64_t kArithmetic = 0x8d5;  // OF SF ZF AF PF CF

uint64_t Spread(uint64_t bits) {
  const uint64_t flags[] = {0x1, 0x4, 0x10, 0x40, 0x80, 0x800};
  uint64_t word = 0;
  for (int i = 0; i < 6; ++i) word |= (bits >> i & 1) != 0 ? flags[i] : 0;
  return word;
}

// Copies downwards with DF set while branches and calls go on.
extern "C" uint64_t CopyDown(unsigned char* to_end, const unsigned char* from_end, uint64_t bytes);
asm(R"(
    .text
    .globl CopyDown
    .type CopyDown, @function
CopyDown:
    xor %eax, %eax
    std
1:  mov %rdx, %rcx
    and $7, %rcx
    add $1, %rcx
    cmp %rdx, %rcx
    cmova %rdx, %rcx
    sub %rcx, %rdx
    rep movsb
    call 2f
    test %rdx, %rdx
    jnz 1b
    pushfq
    pop %rdx
    cld
    and $0x400, %edx
    add %rdx, %rax
    ret
2:  add $1, %rax
    ret
    .size CopyDown, .-CopyDown
)");

// Long additions: the carry crosses two branches per limb (dec leaves it alone).
extern "C" uint64_t AddLong(uint64_t* sum, const uint64_t* value, uint64_t limbs);
asm(R"(
    .text
    .globl AddLong
    .type AddLong, @function
AddLong:
    clc
1:  mov (%rsi), %rax
    jmp 2f
2:  adc %rax, (%rdi)
    lea 8(%rsi), %rsi
    lea 8(%rdi), %rdi
    dec %rdx
    jnz 1b
    setc %al
    movzbl %al, %eax
    ret
    .size AddLong, .-AddLong
)");

uint64_t LongSums() {
  uint64_t sum[64] = {}, value[64];
  uint64_t state = 5, carries = 0;
  for (uint64_t& limb : value) limb = ~(state = check::Next(state)) | 0xffff0000u;
  for (int i = 0; i < 400000; ++i) {
    uint64_t copy[64];
    std::memcpy(copy, sum, sizeof copy);
    const uint64_t carry = AddLong(sum, value, 64);
    if (i % 64 == 0) {  // the same by the compiler's 128-bit arithmetic
      unsigned __int128 wide = 0;
      for (int k = 0; k < 64; ++k) {
        wide += static_cast<unsigned __int128>(copy[k]) + value[k];
        CHECK(sum[k] == static_cast<uint64_t>(wide));
        wide >>= 64;
      }
      CHECK(carry == static_cast<uint64_t>(wide));
    }
    carries += carry;
  }
  return carries * 1000003 + sum[63];
}

}  // namespace

int main() {
  for (int round = 0; round < 12000; ++round) {
    for (uint64_t bits = 0; bits < 64; ++bits) {
      const uint64_t flags = Spread(bits);
      const uint64_t kind = (bits + static_cast<uint64_t>(round)) % kKinds;
      const uint64_t seen = FlagsAcross(flags, kind);
      CHECK((seen & kArithmetic) == flags);
      CHECK((seen & ~kArithmetic) == 0x202);  // interrupts on, the fixed bit; no TF, no DF, no AC
    }
  }
  unsigned char from[1000], to[1000] = {};
  for (size_t i = 0; i < sizeof from; ++i) from[i] = static_cast<unsigned char>(i * 7);
  uint64_t calls = 0;
  for (int i = 0; i < 30000; ++i) {
    std::memset(to, 0, sizeof to);
    calls += CopyDown(to + sizeof to - 1, from + sizeof from - 1, sizeof from);
    CHECK(std::memcmp(to, from, sizeof to) == 0);
  }
  std::printf("calls %llu, long sums %016llx\n", check::Llu(calls), check::Llu(LongSums()));
  return 0;
}
