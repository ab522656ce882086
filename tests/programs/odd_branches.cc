// Instructions that a translator gets wrong first: loop, loope, loopne, jrcxz, jecxz, returns that
// pop, calls and jumps through memory with rsp, rcx and rax in the address, push and pop of (rsp),
// a call to the next instruction, near returns to pushed addresses, enter and leave, xlat, string
// instructions with and without prefixes, far return and iretq, 16-byte compare-exchange, prefixed
// branches. Each has a known result.
#include "check.h"

namespace {

extern "C" uint64_t OddLoops(uint64_t n);
asm(R"(
    .text
    .globl OddLoops
    .type OddLoops, @function
OddLoops:
    xor %eax, %eax
    mov %rdi, %rcx
1:  add $3, %rax
    loop 1b                       # 3n
    mov %rdi, %rcx
2:  add $1, %rax
    test $7, %al
    loopne 2b                     # until al has three low zeros, or rcx is 0
    mov %rdi, %rcx
3:  add $8, %rax
    test $7, %al
    loope 3b
    mov %rdi, %rcx
4:  jrcxz 5f
    dec %rcx
    add $1, %rax
    jmp 4b
5:  mov $0x100000000, %rcx
    jecxz 6f                      # low half is 0: taken
    ud2
6:  jrcxz 7f
    add $1, %rax
7:  mov %rdi, %rcx
8:  addr32 loop 9f
9:  add %rcx, %rax
    ret
    .size OddLoops, .-OddLoops
)");

extern "C" uint64_t OddCalls(uint64_t n);
asm(R"(
    .globl OddCalls
    .type OddCalls, @function
OddCalls:
    push %rbx
    push %rbp
    mov %rdi, %rbx
    xor %ebp, %ebp
1:  push %rbx
    push %rbx
    call PopTwo                   # ret 16
    sub $16, %rsp
    lea Add1(%rip), %rax
    push %rax
    call *(%rsp)                  # through the stack
    call *(%rsp)
    mov $1, %ecx
    call *-8(%rsp,%rcx,8)
    pop 8(%rsp)                   # address formed with the new rsp
    sub $8, %rsp
    push (%rsp)                   # address formed with the old rsp
    pop (%rsp)
    lea Table(%rip), %rax
    mov $2, %ecx
    call *(%rax,%rcx,8)
    mov Table(%rip), %rax
    call *%rax
    lea Table-8(%rip), %rcx
    call *8(%rcx)
    call *Table+8(%rip)
    add $24, %rsp
    call 2f                       # call to the next instruction, as old PIC code has it
2:  pop %rax
    lea 2b(%rip), %rcx
    cmp %rax, %rcx
    je 3f
    ud2
3:  lea 4f(%rip), %rax
    push %rax
    push %rax
    ret $8                        # jump by return, 8 bytes more
    ud2
4:  lea 5f(%rip), %rax
    push %rax
    push %rcx
    mov %rsp, %rcx
    jmp *8(%rsp)
    ud2
5:  pop %rcx
    pop %rax
    lea 6f(%rip), %rcx
    push %rcx
    mov %rsp, %rcx
    jmp *(%rcx)
6:  pop %rcx
    lea 7f(%rip), %rcx
    .byte 0x3e                    # notrack
    jmp *%rcx
7:  call Add3
    .byte 0xf2                    # bnd
    jmp 8f
    ud2
8:  .byte 0x2e                    # a branch hint
    jnz 9f
    nop
9:
    dec %rbx
    jnz 1b
    mov %rbp, %rax
    pop %rbp
    pop %rbx
    ret
PopTwo:
    add 8(%rsp), %rbp
    add 16(%rsp), %rbp
    ret $16
Add1:
    add $1, %rbp
    ret
Add3:
    add $3, %rbp
    repz ret
    .size OddCalls, .-OddCalls
    .section .data.rel, "aw"
    .p2align 3
    .quad 0
Table:
    .quad Add1, Add3, Add3
    .text
)");

// Far return and iretq to the same code segment: legal in user mode, and a PT far transfer.
extern "C" uint64_t FarReturns(uint64_t n);
asm(R"(
    .globl FarReturns
    .type FarReturns, @function
FarReturns:
    push %rbx
    mov %rdi, %rbx
    xor %eax, %eax
1:  mov %cs, %ecx
    push %rcx
    lea 2f(%rip), %rdx
    push %rdx
    lretq
    ud2
2:  add $1, %rax
    mov %ss, %ecx
    mov %rsp, %rdx
    push %rcx
    push %rdx
    pushfq
    mov %cs, %ecx
    push %rcx
    lea 3f(%rip), %rdx
    push %rdx
    iretq
    ud2
3:  add $1, %rax
    dec %rbx
    jnz 1b
    pop %rbx
    ret
    .size FarReturns, .-FarReturns
)");

extern "C" uint64_t FrameAndTable(uint64_t n, const unsigned char* table);
asm(R"(
    .globl FrameAndTable
    .type FrameAndTable, @function
FrameAndTable:
    push %rbx
    mov %rsi, %rbx
    xor %edx, %edx
1:  enter $32, $0
    mov %rdi, -8(%rbp)
    mov -8(%rbp), %rax
    xlatb
    movzbl %al, %eax
    add %rax, %rdx
    enter $16, $2
    leave
    leave
    dec %rdi
    jnz 1b
    mov %rdx, %rax
    pop %rbx
    ret
    .size FrameAndTable, .-FrameAndTable
)");

// Every string instruction over short and long counts, also zero.
uint64_t Strings(uint64_t rounds) {
  unsigned char from[4096], to[4096];
  for (size_t i = 0; i < sizeof from; ++i) from[i] = static_cast<unsigned char>(i * 13 + 1);
  uint64_t sum = 0;
  for (uint64_t i = 0; i < rounds; ++i) {
    uint64_t count = i % 5 == 0 ? sizeof from : i % 37;
    const unsigned char* source = from;
    unsigned char* target = to;
    asm volatile("rep movsb" : "+S"(source), "+D"(target), "+c"(count) : : "memory");
    CHECK(count == 0 && source - from == target - to);
    count = 1 + i % 300;
    target = to;
    asm volatile("rep stosb" : "+D"(target), "+c"(count) : "a"(i) : "memory");
    CHECK(count == 0 && target == to + 1 + i % 300);
    target = from;
    count = sizeof from;
    const auto wanted = static_cast<unsigned char>(i);
    asm volatile("repne scasb" : "+D"(target), "+c"(count) : "a"(wanted) : "memory", "cc");
    CHECK(target[-1] == wanted);
    sum += count;
    source = from;
    target = to;
    count = sizeof from;
    asm volatile("repe cmpsb" : "+S"(source), "+D"(target), "+c"(count) : : "memory", "cc");
    sum += count;
    count = i % 3;
    source = from;
    uint64_t last = 0;
    asm volatile("rep lodsb" : "+S"(source), "+c"(count), "+a"(last) : : "memory");
    sum += last;
  }
  return sum;
}

uint64_t CompareExchange(uint64_t rounds) {
  alignas(16) uint64_t pair[2] = {0, 0};
  for (uint64_t i = 0; i < rounds; ++i) {
    uint64_t low = pair[0], high = pair[1];
    bool done = false;
    asm volatile("lock cmpxchg16b %[pair]\n setz %[done]"
                 : [pair] "+m"(pair), [done] "=q"(done), "+a"(low), "+d"(high)
                 : "b"(low + 1), "c"(high + i)
                 : "cc", "memory");
    CHECK(done);
  }
  return pair[0] ^ pair[1];
}

uint64_t ExpectedLoops(uint64_t n) {
  uint64_t value = 3 * n;
  for (uint64_t c = n;;) {
    ++value;
    if (--c == 0 || (value & 7) == 0) break;
  }
  for (uint64_t c = n;;) {
    value += 8;
    if (--c == 0 || (value & 7) != 0) break;
  }
  value += n + 1;
  return value + (n - 1);
}

}  // namespace

int main() {
  uint64_t sum = 0;
  for (uint64_t i = 1; i < 8000; ++i) {
    const uint64_t loops = OddLoops(i);
    CHECK(loops == ExpectedLoops(i));
    sum += loops;
  }
  for (uint64_t i = 1; i < 4000; ++i) {
    const uint64_t calls = OddCalls(i);
    CHECK(calls == i * (i + 1) + i * 14);
    sum += calls;
  }
  CHECK(FarReturns(100000) == 200000);
  unsigned char table[256];
  uint64_t table_sum = 0;
  for (size_t i = 0; i < 256; ++i) table_sum += table[i] = static_cast<unsigned char>(i * 31 + 5);
  CHECK(FrameAndTable(256 * 4000, table) == table_sum * 4000);
  std::printf("sum %llu, strings %llu, pairs %llu\n", check::Llu(sum), check::Llu(Strings(20000)),
              check::Llu(CompareExchange(10000000)));
  return 0;
}
